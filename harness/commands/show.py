"""`harness show RUN`: one run in full."""

from __future__ import annotations

from pathlib import Path

import click

from harness.commands import options
from harness.errors import UsageError


@click.command("show")
@click.argument("run")
@options.json_option
@options.db_option
@options.problem_option
def command(run: str, as_json: bool, db: str | None, problem: Path | None) -> None:
    """Show one run in full: cases, errors, samples, doubts, log.

    RUN is a run's id, the beginning of it, or a submission by its name or file: its latest run.
    `harness leaderboard --all` lists them.
    """
    with options.in_a_hurry():
        root = options.task_root(problem)
        _show(run, as_json, options.store_url(db, root), root)


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
        other = plain(standing.run, "ascii")
        options.say(f"its standing is run {other}: harness show {other}\n")
