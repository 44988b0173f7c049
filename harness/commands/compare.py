"""`harness compare A B`: two submissions measured side by side."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from harness.commands import options
from harness.commands.run import judge
from harness.errors import UsageError
from harness.model import IsolationPolicy, Job, Mode, Run, Shape, Submission
from harness.render import text


@click.command("compare")
@click.argument("a")
@click.argument("b")
@click.option(
    "--repeats",
    type=click.IntRange(3, 100),  # two leave Student's t one degree of freedom: 0.0000 to 31323
    default=3,
    show_default=True,
    metavar="N",
    help="Rounds of A, B, B, A; more of them see smaller differences.",
)
@options.device_option
@options.shapes_option("Use", "the ranked ones (repeatable)")
@options.budget_option("each process")
@options.isolation_option
@options.quiet_option
@options.json_option
@options.db_option
@options.problem_option
def command(a: str, b: str, **chosen: Any) -> int:
    """Say whether A is faster than B, from fresh processes in the order A B B A.

    A and B are files, or runs by their id or their submission's name (its latest run), whose source
    was stored with them.  Every timed output is checked.  Nothing is stored.  Exit code: 0
    measured, 1 one of them does not pass.
    """
    from harness.compare import evaluate, measure
    from harness.task import find_root, load, parse_shapes

    path = Path(a) if Path(a).exists() else None
    root = find_root(chosen["problem"], Path.cwd(), path)
    task = load(root)
    shapes = parse_shapes(chosen["shapes"], task)
    url = options.store_url(chosen["db"], root)
    sides = {side: _submission(name, side, url, chosen) for side, name in (("A", a), ("B", b))}
    total = 4 * chosen["repeats"]
    begin_ns = time.monotonic_ns()

    last = ""

    def make(side: str, number: int) -> Run:
        nonlocal last
        last = side
        job = _job(root, sides[side], shapes, chosen)
        left = _left(time.monotonic_ns() - begin_ns, number, total)
        label = f"{side} {sides[side].name} ({number + 1}/{total}{left})"
        return judge(job, label, quiet=chosen["quiet"], brief=True)

    quartets, failed = measure(make, chosen["repeats"])
    if failed is not None:
        name, message = text.plain(failed.submission.name), text.plain(failed.message)
        click.echo(f"{last}, {name}, did not pass: {failed.verdict}: {message}", err=True)
        return 1
    result = evaluate(quartets)
    if chosen["as_json"]:
        from harness.render import comparison, export

        options.say(export.dumps(comparison.document(result)) + "\n")
        return 0
    from harness.render.comparison import comparison_view

    console = options.console()
    console.print(comparison_view(result, options.signs(console)))
    return 0


def _left(spent_ns: int, done: int, total: int) -> str:
    """How long the rest will take, by what has been done; "" before anything has."""
    if not done:
        return ""
    seconds = spent_ns / done * (total - done) / 1e9
    return f", {seconds:.0f} s left" if seconds < 120 else f", {seconds / 60:.0f} min left"


def _submission(name: str, side: str, url: str, chosen: dict[str, Any]) -> Submission:
    """A file, else a stored run's submission as it was judged, which is said.

    The file of that name may have been changed since.
    """
    from harness.sources import read_submission, require_source
    from harness.store import MissingStore, open_store

    if Path(name).exists() or Path(name).suffix == ".py":
        return read_submission(Path(name), None)
    try:
        with open_store(url, create=False) as store:
            try:
                run = store.get(name)
            except UsageError as error:
                raise UsageError(f"{name}: there is no such file, and {error}") from None
            submission = require_source(run.submission)
    except MissingStore:
        raise UsageError(f"{name}: there is no such file, and no run is stored yet") from None
    if not chosen["quiet"]:
        called, run_id = text.plain(submission.name, "ascii"), text.plain(run.id, "ascii")
        click.echo(f"{side}: {called} as stored with run {run_id}", err=True)
    return submission


def _job(
    root: Path, submission: Submission, shapes: tuple[Shape, ...], chosen: dict[str, Any]
) -> Job:
    budget = chosen["budget"]
    return Job(
        task_root=str(root),
        submission=submission,
        device=chosen["device"],
        mode=Mode.BENCHMARK,
        shapes=shapes,
        processes=1,
        budget_ns=None if budget is None else round(budget * 1e9),
        isolation=IsolationPolicy(chosen["isolation"]),
    )
