"""`harness leaderboard`: who is ahead, by how much, and how sure that is."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.commands import options
from harness.errors import UsageError
from harness.model import MOST_CONFIRMED, Clock

if TYPE_CHECKING:
    from harness.model import Board, Summary, Task
    from harness.store import Store

FORMATS = ("table", "json", "csv", "markdown")


@click.command("leaderboard")
@click.option("--device", metavar="NAME", help="Only the board of this device.")
@click.option("--task", "task_name", metavar="NAME", help="Only the boards of this task.")
@click.option(
    "--format",
    "layout",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="csv and json have full names and full precision; markdown is for a pull request.",
)
@options.json_option
@click.option(
    "--all", "everything", is_flag=True, help="Also the runs without a rank, and the reason."
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the boards as one page that opens offline.",
)
@click.option("--with-source", is_flag=True, help="Let the page hold the submissions' source.")
@click.option(
    "--confirm",
    type=click.IntRange(1, MOST_CONFIRMED),
    metavar="N",
    help="First measure the N fastest again, interleaved, on fresh inputs; those runs count.",
)
@click.option(
    "--judge-clock",
    is_flag=True,
    help="Rank by the judge's own clock alone: nothing that a worker said counts, and on a GPU "
    "times are known to a microsecond or so.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most N entries a board.")
@options.db_option
@options.problem_option
def command(
    device: str | None,
    task_name: str | None,
    layout: str,
    as_json: bool,
    everything: bool,
    html: Path | None,
    with_source: bool,
    confirm: int | None,
    judge_clock: bool,
    limit: int | None,
    db: str | None,
    problem: Path | None,
) -> int:
    """Show who is ahead, by how much, and how sure that is.

    A standing is a submission's latest ranked run, not its best, and gone when the very same file
    fails later.  A rank is one more than the number of entries ahead by more than noise, so that
    those which noise does not tell apart share one; every device has a board of its own.

    Exit code 1 when --confirm found a run that does not pass any more.
    """
    from harness.task import find_root

    if with_source and html is None:
        raise click.UsageError("--with-source is for --html FILE")
    if html is not None and judge_clock:
        raise click.UsageError(
            "--html shows the published times of each run; leave out --judge-clock"
        )
    if html is not None:
        from harness import whole_file

        # Before --confirm measures for minutes what could not be written.
        whole_file.refuse_foreign(
            html,
            [whole_file.PAGE],
            option="--html ",
            remedy="name a new file, or an earlier page",
        )
    # Without --db the results are the task's, so there must be one.
    root = options.task_root(problem) if db else find_root(problem, Path.cwd(), None)
    url = options.store_url(db, root)
    confirmed = True
    if confirm is not None:
        from harness.commands import confirming

        confirmed = confirming.confirm(url, root, device, confirm)
    with options.in_a_hurry():
        found = _read(
            url,
            options.task_at(root),
            task_name,
            device,
            everything,
            judge_clock=judge_clock,
            may_be_missing=db is None,
        )
        if (device or task_name) and not found and (said := _unknown(url, task_name, device)):
            raise UsageError(said)
        if html is not None:
            from harness.commands import page_file

            cut = tuple(_cut(board, limit) for board in found)
            said = page_file.write(html, url, cut, everything=everything, with_source=with_source)
            click.echo(said, err=as_json or layout != "table")
            if not as_json and layout == "table":
                return 0 if confirmed else 1
        if as_json or layout != "table":
            cut = tuple(_cut(board, limit) for board in found)
            options.say(_document(cut, "json" if as_json else layout, everything))
        else:
            _show(
                found,
                limit,
                everything,
                narrowed=bool(device or task_name),
                confirmed=confirm is not None,
            )
    return 0 if confirmed else 1


def _read(
    url: str,
    task: Task | None,
    task_name: str | None,
    device: str | None,
    everything: bool,
    *,
    judge_clock: bool,
    may_be_missing: bool,
) -> tuple[Board, ...]:
    from harness.leaderboard import boards as make_boards
    from harness.store import MissingStore, open_store

    try:
        with open_store(url, create=False) as store:
            if everything:
                rows = store.runs(task=task_name, device=device)
            else:
                rows = store.latest_eligible(task, task=task_name, device=device)
            if judge_clock:
                rows = tuple(_by_the_judge(store, row) for row in rows)
                if not everything and any(row.score_ns is None for row in rows):
                    # An earlier run of the same submission may have the judge's times.
                    rows = store.runs(task=task_name, device=device)
                    rows = tuple(_by_the_judge(store, row) for row in rows)
            return make_boards(rows, task=task)
    except MissingStore:
        # The default database comes with the first run; one that was named should be there.
        if may_be_missing:
            return ()
        raise


def _by_the_judge(store: Store, row: Summary) -> Summary:
    """The row with the times of the judge's own clock, where it could stand at all."""
    from harness import samples
    from harness.errors import StoreError
    from harness.leaderboard import ineligible, summarise

    if ineligible(row) is not None or row.clock is Clock.HOST:
        return row  # and of a CPU's, which are the judge's already, no samples are read
    try:
        return summarise(samples.by_the_judge(store.get(row.id)))
    except StoreError:  # a board is shown with damaged details too; these times are in them
        return replace(row, shapes=(), score_ns=None)


def _unknown(url: str, task_name: str | None, device: str | None) -> str | None:
    """What is said of a --task or --device that no run is of; None where nothing is stored."""
    from harness.commands import narrowing
    from harness.store import MissingStore, open_store

    try:
        with open_store(url, create=False) as store:
            return narrowing.unknown(store, task_name, device)
    except MissingStore:
        return None


def _cut(board: Board, limit: int | None) -> Board:
    return replace(board, standings=board.standings[:limit])


def _document(boards: tuple[Board, ...], layout: str, everything: bool) -> str:
    if layout == "json":
        from harness.render import export

        return export.dumps(export.boards_document(boards, everything=everything)) + "\n"
    from harness.render import sheets

    if layout == "csv":
        return sheets.boards_csv(boards, everything=everything)
    return sheets.boards_markdown(boards, everything=everything)


def _show(
    boards: tuple[Board, ...],
    limit: int | None,
    everything: bool,
    *,
    narrowed: bool,
    confirmed: bool,
) -> None:
    from harness.render.standings import boards_view

    console = options.console()
    if any(b.standings or (everything and b.unranked) for b in boards):
        view = boards_view(
            boards,
            signs=options.signs(console),
            now_ns=time.time_ns(),
            limit=limit,
            everything=everything,
            confirmed=confirmed,
        )
        console.print(view)
        return
    if narrowed and not boards:
        console.print("No ranked run fits --device and --task; leave them out to see every board.")
    elif boards:
        console.print(
            "No run of the task's present version is ranked; see `harness leaderboard --all`, "
            "or rank one: `harness run submissions/torch_dequant.py`."
        )
    else:
        console.print(
            "No ranked run yet. Rank a first one: `harness run submissions/torch_dequant.py`; "
            "runs of other modes: `harness leaderboard --all`."
        )
