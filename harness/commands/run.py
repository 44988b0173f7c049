"""`harness run`: check, time and store submissions, and show their rank."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from harness import interrupts, pool
from harness.commands import options
from harness.errors import StoreError
from harness.interrupts import interruptible
from harness.leaderboard import NOWHERE, Place
from harness.model import (
    IsolationPolicy,
    Job,
    Mode,
    Run,
    Shape,
    Submission,
    Task,
    Verdict,
)
from harness.render import text
from harness.render.progress import live_progress
from harness.sources import read_submission
from harness.task import find_root, load, parse_shapes


@click.command("run")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.device_option
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    default=Mode.RANKED.value,
    show_default=True,
    help="test checks, benchmark times, ranked does both and counts.",
)
@options.shapes_option("Use", "the mode's own (repeatable; never ranked)")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Replaces the public seeds.")
@click.option("--processes", type=click.IntRange(1, 100), help="Fresh worker processes to time in.")
@options.budget_option("a run")
@click.option("--timeout", type=options.Finite(1, 86400), metavar="S", help="Seconds for a run.")
@options.isolation_option
@click.option("--author", metavar="NAME", help="Author, instead of the file's `#!HARNESS author`.")
@click.option("--no-store", is_flag=True, help="Do not keep the runs.")
@options.quiet_option
@options.json_option
@options.db_option
@options.problem_option
def command(files: Sequence[Path], **chosen: Any) -> int:
    """Check FILES against the reference, time them, store the runs and show their rank.

    Exit code: 0 all passed, 1 some verdict is not `passed`, 2 usage, 3 the harness failed.
    """
    root = find_root(chosen["problem"], Path.cwd(), files[0])
    task = load(root)
    shapes = parse_shapes(chosen["shapes"], task)
    # Every file is read before the first is judged: a typing error costs no half hour.
    submissions = [read_submission(path, chosen["author"]) for path in _distinct(files)]
    url = options.store_url(chosen["db"], root)
    stored = not chosen["no_store"]
    if stored:
        _refuse_unwritable(url, named=chosen["db"] is not None)
    runs: list[Run] = []
    with _told(runs, stored=stored):
        for number, submission in enumerate(submissions, start=1):
            job = _job(root, submission, shapes, chosen)
            count = f" ({number}/{len(submissions)})" if len(submissions) > 1 else ""
            with interruptible(keeps=stored):
                run = judge(job, submission.name + count, quiet=chosen["quiet"])
                if stored:
                    # At once: what a later submission or a Ctrl-C breaks does not lose this one.
                    keep(url, run, root)
                runs.append(run)
            if not chosen["as_json"]:
                if number > 1:
                    click.echo()
                namesake = [s.name for s in submissions].count(submission.name) > 1
                _show(run, task, url, stored=stored, by_author=namesake)
    if chosen["as_json"]:
        _print_json(runs, task, url, stored=stored)
    elif len(runs) > 1:
        _show_together(runs, task, url, stored=stored)
    return 0 if all(run.verdict is Verdict.PASSED for run in runs) else 1


@contextlib.contextmanager
def _told(runs: Sequence[Run], *, stored: bool) -> Iterator[None]:
    """Have a signal say what it did not lose, where there is any."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if runs and stored:
            stop.add_note("runs that had ended are kept")
        raise


def _distinct(files: Sequence[Path]) -> list[Path]:
    return list(dict.fromkeys(files))


def _job(
    root: Path, submission: Submission, shapes: tuple[Shape, ...], chosen: dict[str, Any]
) -> Job:
    return Job(
        task_root=str(root),
        submission=submission,
        device=chosen["device"],
        mode=Mode(chosen["mode"]),
        shapes=shapes,
        seed=chosen["seed"],
        processes=chosen["processes"],
        budget_ns=_ns(chosen["budget"]),
        timeout_ns=_ns(chosen["timeout"]),
        isolation=IsolationPolicy(chosen["isolation"]),
        observe=chosen["mode"] == Mode.RANKED,
    )


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)


def judge(job: Job, label: str, *, quiet: bool, brief: bool = False) -> Run:
    """Make the Run of one job, with progress on stderr; a signal ends it and all it started."""
    progress = live_progress(sys.stderr, os.environ, label, quiet=quiet, brief=brief)
    with interruptible(), progress as report:
        return pool.run_job(job, report)


def _refuse_unwritable(url: str, *, named: bool) -> None:
    """Open the store for writing before any work is done that could not be kept."""
    from harness.store import open_store

    with open_store(url, create=True) as store:
        store.prove_writable()
        if named and store.new:
            options.say_new(store.where)


def keep(url: str, run: Run, root: Path) -> None:
    """Store a run, or what a locked database and a signal leave of it: a bundle, and say where."""
    from harness.store import open_store

    try:
        interrupts.at_once()
        with open_store(url, create=True) as store:
            store.add(run)
    except StoreError as error:
        raise StoreError(f"{error}\n{_rescue(run, root)}") from error
    except KeyboardInterrupt:
        click.echo(f"harness: not stored yet: {text.plain(_rescue(run, root), 'ascii')}", err=True)
        raise


def _rescue(run: Run, root: Path) -> str:
    """Keep a run that the database would not take as a bundle, and say where that is."""
    from harness import bundle

    interrupts.in_hand()
    data = bundle.dumps(bundle.make([run], with_source=True))
    for folder in (root / "results", Path(tempfile.gettempdir())):
        file = folder / f"unstored-{run.id}.json"
        with contextlib.suppress(OSError), file.open("xb") as out:
            out.write(data)
            return f"the run ({run.verdict}) is kept: harness import {file}"
    return f"the run ({run.verdict}) is lost: no folder could be written"


def _place(run: Run, task: Task, url: str) -> Place:
    """The run's place on its board."""
    from harness.store import open_store

    with open_store(url, create=False) as store:
        return store.place(run, task)


def _show(run: Run, task: Task, url: str, *, stored: bool, by_author: bool) -> None:
    from harness.render.terminal import run_view

    where = _place(run, task, url) if stored else NOWHERE
    console = options.console()
    signs = options.signs(console)
    console.print(run_view(run, signs=signs, place=where, stored=stored, by_author=by_author))


def _show_together(runs: Sequence[Run], task: Task, url: str, *, stored: bool) -> None:
    """What a reader of several runs takes home: how many passed, and who leads now."""
    from harness.leaderboard import boards, ranks
    from harness.render.standings import lead
    from harness.render.terminal import tally
    from harness.store import open_store

    console = options.console()
    console.print(f"\n{tally(runs)}", highlight=False)
    if not stored:
        return
    with open_store(url, create=False) as store:
        rows = store.latest_eligible(task, task=task.name, device=runs[-1].device.name)
    for board in boards(rows, task=task):
        if any(run.id in ranks([board]) for run in runs):
            console.print(lead(board, options.signs(console)))


def _print_json(runs: Sequence[Run], task: Task, url: str, *, stored: bool) -> None:
    from harness.render import export

    standings = [_place(run, task, url).standing for run in runs] if stored else []
    ranks = {standing.run: standing.rank for standing in standings if standing is not None}
    options.say(export.dumps(export.run_document(runs, ranks)) + "\n")
