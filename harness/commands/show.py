"""`harness show`: one run in full, or a list of the latest."""

from __future__ import annotations

import time
from pathlib import Path

import click

from harness.commands import options
from harness.errors import UsageError


@click.command("show")
@click.argument("run", required=False)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="Without RUN: so many runs at most.",
)
@options.json_option
@options.db_option
@options.problem_option
def command(
    run: str | None, limit: int, as_json: bool, db: str | None, problem: Path | None
) -> None:
    """Show one run in full: cases, errors, samples, doubts, log.

    RUN is a run's id, the beginning of it, or a submission by its name or file: its latest run.
    Without RUN the latest runs are listed, of every submission, device and mode.
    """
    with options.in_a_hurry():
        root = options.task_root(problem)
        url = options.store_url(db, root)
        if run is None:
            _list(limit, as_json, url, root, may_be_missing=db is None)
        else:
            _show(run, as_json, url, root)


def _list(limit: int, as_json: bool, url: str, root: Path | None, *, may_be_missing: bool) -> None:
    from harness.leaderboard import boards, ranks, reasons
    from harness.render import listing
    from harness.store import MissingStore, open_store

    try:
        with open_store(url, create=False) as store:
            task = options.task_at(root)
            every = store.runs()
    except MissingStore:
        if not may_be_missing:
            raise
        task, every = None, ()
    found = every[:limit]
    made = boards(every, task=task)
    ranked = ranks(made)
    if as_json:
        from harness.render import export

        options.say(export.dumps(listing.runs_document(found, ranked)) + "\n")
        return
    console = options.console()
    signs = options.signs(console)
    if not found:
        console.print("No run is stored yet: `harness run submissions/torch_dequant.py` makes one.")
        return
    console.print(
        listing.runs_table(found, ranked, reasons(made), signs=signs, now_ns=time.time_ns())
    )
    console.print("")
    console.print("`harness show RUN` has one in full.", style="dim")


def _show(key: str, as_json: bool, url: str, root: Path | None) -> None:
    from harness.store import MissingStore, open_store

    try:
        with open_store(url, create=False) as store:
            found = store.get(key)
            task = options.task_at(root)
            where = store.place(found, task)
            by_name = not found.id.startswith(key)
            standing = store.standing(found, task) if by_name and not where.standing else None
    except MissingStore as error:
        raise UsageError(f"no run {key!r}: {error}") from None
    if as_json:
        from harness.render import export

        ranks = {found.id: where.standing.rank} if where.standing else {}
        options.say(export.dumps(export.run_document([found], ranks)) + "\n")
        return
    from harness.render.terminal import run_view
    from harness.render.text import plain

    console = options.console()
    console.print(run_view(found, signs=options.signs(console), place=where, full=True))
    if standing is not None:
        # A quick `--mode test` hides the ranked run, of which its author wants to see the times.
        device, other = (plain(one, "ascii") for one in (standing[0], standing[1].run))
        there = "" if standing[0] == found.device.name else f" on {device}"
        options.say(f"its standing{there} is run {other}: harness show {other}\n")
