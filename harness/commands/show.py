"""`harness show RUN`: one run in full."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.commands import options
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.model import Run, Standing
    from harness.store import Store


@click.command("show")
@click.argument("run")
@options.json_option
@options.db_option
@options.problem_option
def command(run: str, as_json: bool, db: str | None, problem: Path | None) -> None:
    """Show one run in full: cases, errors, samples, doubts, log.

    RUN is a run's id or the beginning of it; `harness leaderboard --all` lists them.
    """
    with options.in_a_hurry():
        root = options.task_root(problem)
        _show(run, as_json, options.store_url(db, root), root)


def _show(key: str, as_json: bool, url: str, root: Path | None) -> None:
    from harness.store import MissingStore, open_store

    try:
        with open_store(url, create=False) as store:
            found = store.get(key)
            standing, of = _standing(store, found, root)
    except MissingStore as error:
        raise UsageError(f"no run {key!r}: {error}") from None
    if as_json:
        from harness.render import export

        ranks = {found.id: standing.rank} if standing else {}
        options.say(export.dumps(export.run_document([found], ranks)) + "\n")
        return
    from harness.render.terminal import run_view

    console = options.console()
    signs = options.signs(console)
    console.print(run_view(found, signs=signs, standing=standing, of=of, full=True))


def _standing(store: Store, run: Run, root: Path | None) -> tuple[Standing | None, int | None]:
    """The run's place on its board, and how many there are; None when it has none."""
    from harness.leaderboard import boards, ineligible

    if ineligible(run) is not None:
        return None, None
    task = options.task_at(root)
    rows = store.latest_eligible(task, task=run.task, device=run.device.name)
    for board in boards(rows, task=task):
        for standing in board.standings:
            if standing.run == run.id:
                return standing, len(board.standings)
    return None, None
