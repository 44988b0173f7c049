"""`harness verify FILE`: is a bundle sound, and what in it could stand on a board."""

from __future__ import annotations

from pathlib import Path

import click

from harness import bundle as bundles
from harness import planned
from harness.bundle import Bundle
from harness.commands import options
from harness.errors import UsageError
from harness.leaderboard import ineligible
from harness.model import Run, Task
from harness.render import text

signers_option = click.option(
    "--signers",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Demand a signature by one of these (an allowed_signers file of ssh-keygen).",
)


@click.command("verify")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@signers_option
@options.json_option
@options.problem_option
def command(file: Path, signers: Path | None, as_json: bool, problem: Path | None) -> int:
    """Check a bundle: digest, signature, and that each run's figures follow from its samples.

    Where the task that a run is of is at hand, its cases must be the task's own.  That a run was
    made as it says, nobody can read off a file: `harness replay` makes it again.

    Exit code: 0 sound, 1 some run is not, 2 no bundle, damaged, or not signed as demanded.
    """
    bundle, vouched = read(file, signers)
    task = options.task_at(options.task_root(problem))
    found = {run.id: problems(run, task) for run in bundle.runs}
    if as_json:
        from harness.render import export

        options.say(export.dumps(_document(bundle, vouched, found)) + "\n")
    else:
        lines = [*_lines(bundle, vouched, found), *not_compared(bundle, task)]
        options.say("".join(f"{line}\n" for line in lines))
    return 1 if any(found.values()) else 0


def read(file: Path, signers: Path | None) -> tuple[Bundle, str]:
    """A bundle whose digest holds, and who vouches for it, in words.

    Raises UsageError when it cannot be read, was changed, or is not signed as `signers` demands.
    """
    try:
        with file.open("rb") as source:
            data = source.read(bundles.MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror})") from None
    if len(data) > bundles.MAX_BYTES:
        raise UsageError(f"{file}: is larger than {bundles.MAX_BYTES >> 20} MiB, the limit")
    bundle = bundles.loads(data, str(file))
    if not bundle.signature:
        if signers is not None:
            raise UsageError(f"{file}: is not signed, and --signers demands it")
        return bundle, "not signed: nobody vouches for it"
    from harness import signature

    return bundle, signature.check(bundle.digest, bundle.signature, signers)


def problems(run: Run, task: Task | None) -> tuple[str, ...]:
    """All that speaks against a run, by its own figures and by its task's where that is `task`."""
    return (*bundles.problems(run), *(planned.departures(run, task) if task is not None else ()))


def not_compared(bundle: Bundle, task: Task | None) -> list[str]:
    """A sentence where some run's task, as it was then, is not at hand."""
    digest = task.digest if task is not None else ""
    others = {text.plain(run.task) for run in bundle.runs if run.task_digest != digest}
    if not others:
        return []
    which = f"that version of {text.listing(sorted(others))}"
    return [f"{which} is not here (--problem DIR): cases were not compared with the task's own"]


def _lines(bundle: Bundle, vouched: str, found: dict[str, tuple[str, ...]]) -> list[str]:
    lines = [f"digest  {bundle.digest}", f"        {vouched}", ""]
    for run in bundle.runs:
        bad = found[run.id]
        score = f"  {text.duration(run.score_ns, text.marks('ascii'))}" if run.score_ns else ""
        lines.append(f"{'BAD' if bad else 'ok '}  {_name(run)}{score}  {_standing(run)}")
        lines += [f"     {text.plain(problem)}" for problem in bad]
    bad_runs = sum(map(bool, found.values()))
    lines += ["", f"{len(found)} runs, {bad_runs} not sound" if bad_runs else "every run is sound"]
    return lines


def _name(run: Run) -> str:
    return f"{text.plain(run.id)}  {text.plain(run.submission.name)}"


def _standing(run: Run) -> str:
    reason = ineligible(run)
    return "could stand" if reason is None else f"no standing: {text.plain(reason)}"


def _document(bundle: Bundle, vouched: str, found: dict[str, tuple[str, ...]]) -> dict[str, object]:
    return {
        "schema": 1,
        "digest": bundle.digest,
        "signature": vouched,
        "harness": bundle.harness_version,
        "runs": [
            {
                "id": run.id,
                "submission": run.submission.name,
                "problems": list(found[run.id]),
                "ineligible": ineligible(run),
            }
            for run in bundle.runs
        ],
    }
