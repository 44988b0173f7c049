"""Boards on a terminal: rank, score and interval first, the rest as far as the width allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from harness import stats
from harness.model import MOST_CONFIRMED, Board, Clock, Doubt, Standing, Unranked
from harness.render import text
from harness.render.table import Cell, Column, Fitted
from harness.render.text import Marks, plain

#: Doubts about a time that measuring again, side by side with others, settles.
_UNSURE = frozenset({Doubt.NOISY, Doubt.FEW_SAMPLES, Doubt.BUDGET, Doubt.SHARED_CPU})


def boards_view(
    boards: Sequence[Board],
    *,
    signs: Marks,
    now_ns: int,
    limit: int | None = None,
    everything: bool = False,
    confirmed: bool = False,
) -> RenderableType:
    """Each board as a table and a sentence; `everything` adds the runs that have no rank, and why.

    `limit` cuts the standings shown, never the ranks.  `now_ns` is Unix time, for ages.
    `confirmed`: no board asks for the --confirm that has just been made.
    """
    parts: list[RenderableType] = []
    for board in boards:
        if not board.standings and not everything:
            continue
        if parts:
            parts.append("")
        title = f"{plain(board.task, signs.encoding)} on {plain(board.device, signs.encoding)}"
        parts.append(Text(title, "bold"))
        if board.standings:
            parts += ["", _table(board, board.standings[:limit], signs, now_ns, everything), ""]
            parts += _sentences(board, signs, limit, confirmed)
        if everything and board.unranked:
            parts += ["", Text("without a rank", "bold"), ""]
            parts.append(_unranked(board.unranked, signs, now_ns))
    return Group(*parts)


def _table(
    board: Board, shown: Sequence[Standing], signs: Marks, now_ns: int, everything: bool
) -> RenderableType:
    shapes = shown[0].shapes
    scores = text.durations([s.score_ns for s in shown], signs)
    columns = [
        Column("rank"),
        Column("range", order=12),
        Column("submission", wrap=True),
        Column("author", order=10, wrap=True),
        Column("score", right=True),
        Column(f"{signs.plus_minus} 95%", right=True, order=11),
        Column("speedup", right=True, order=8),
        Column("of floor", right=True, order=6),
        Column("light speed", right=True, order=4),
        *(Column(plain(s.shape.label, signs.encoding), right=True, order=3) for s in shapes),
        Column("age", right=True, order=5),
        Column("doubts", order=9, wrap=True),
        Column("judged", order=1),
        # Whoever asks for everything wants to name one.
        Column("run", order=7 if everything else 2),
    ]
    rows = [_row(s, score, signs, now_ns) for s, score in zip(shown, scores, strict=True)]
    if _common_doubts(shown):
        at = [column.title for column in columns].index("doubts")
        for row in rows:
            row[at] = ""  # _sentences says them once
    return Fitted(columns, rows)


def _common_doubts(shown: Sequence[Standing]) -> tuple[Doubt, ...]:
    """The doubts of each of several rows, where all have the same."""
    doubts = {s.doubts for s in shown}
    return doubts.pop() if len(shown) > 1 and len(doubts) == 1 else ()


def _row(s: Standing, score: str, signs: Marks, now_ns: int) -> list[Cell]:
    first = "bold" if s.rank == 1 else ""
    return [
        (str(s.rank), first),
        f"{s.rank_low}{signs.to}{s.rank_high}" if s.rank_low != s.rank_high else "",
        (plain(s.submission, signs.encoding), first),
        plain(s.author, signs.encoding),
        (score, first),
        text.spread(s.low_ns, s.score_ns, s.high_ns, signs),
        text.factor(s.speedup, signs),
        text.percent(s.floor_share, signs),
        text.percent(s.light_speed, signs),
        *(text.duration(shape.median_ns, signs) for shape in s.shapes),
        text.age(s.created_ns, now_ns),
        (", ".join(s.doubts), "yellow"),
        f"{s.isolation}, {s.clock} clock",
        plain(s.run, signs.encoding),
    ]


def _sentences(board: Board, signs: Marks, limit: int | None, confirmed: bool) -> Iterator[Text]:
    yield lead(board, signs)
    hidden = len(board.standings) - len(board.standings[:limit])
    if hidden:
        yield Text(f"{hidden} more entries are not shown (--limit).", "dim")
    if common := _common_doubts(board.standings[:limit]):
        yield Text(f"Doubts of all of them: {', '.join(common)}.", "yellow")
    if any(s.clock is Clock.JUDGE for s in board.standings):
        yield Text(
            "By the judge's own clock, which no submission can move. Finer differences rest on the "
            "workers' events: leave out --judge-clock.",
            "dim",
        )
    if any(s.rank_low != s.rank_high for s in board.standings[:limit]):
        yield Text("Range: the ranks that the noise leaves open.", "dim")
    if not confirmed and (count := _worth_confirming(board.standings)):
        yield Text(
            f"To be sure, `harness leaderboard --confirm {count}` on that device measures the "
            f"first {count} again, in turn.",
            "dim",
        )


def _worth_confirming(standings: Sequence[Standing]) -> int:
    """How many of the first to measure side by side: those of rank 1, or a lead that is in doubt.

    Runs of one submission differ by more than their intervals where the machine was not quiet, and
    in turn they meet the same noise.  0: nothing would come of it.
    """
    shared = sum(s.rank == 1 for s in standings)
    unsure = any(_UNSURE.intersection(s.doubts) for s in standings[:2])
    if len(standings) < 2 or not (shared > 1 or unsure):
        return 0
    return min(max(2, shared), MOST_CONFIRMED)


def lead(board: Board, signs: Marks) -> Text:
    """Who leads a board that has standings, by how much, and how sure that is."""
    first = [s for s in board.standings if s.rank == 1]
    rest = [s for s in board.standings if s.rank > 1]
    names = Counter(s.submission for s in board.standings)
    who = text.listing([plain(called(s, names), signs.encoding) for s in first])
    if len(first) > 1:
        said = Text(who, "bold").append(" share rank 1: their difference is within noise", "")
    elif not rest:
        said = Text(who, "bold").append(" is the only entry", "")
    else:
        said = Text(who, "bold").append(" leads", "")
    if rest:
        best = min(first, key=lambda s: s.score_ns)
        second = min(rest, key=lambda s: s.score_ns)
        other = plain(called(second, names), signs.encoding)
        said.append(f"; {other} takes {times_as_long(best, second, signs)} as long")
    return said.append(".")


def called(s: Standing, names: Mapping[str, int]) -> str:
    """A submission's name, any text; with its author's where another of the board has the same."""
    return s.submission + (f" by {s.author}" if names[s.submission] > 1 else "")


def times_as_long(best: Standing, other: Standing, signs: Marks) -> str:
    """How the other's score stands to the best one's, with the noise of both."""
    a, b = (stats.Interval(s.score_ns, s.low_ns, s.high_ns) for s in (best, other))
    noise = (stats.half_width(a) ** 2 + stats.half_width(b) ** 2) ** 0.5
    ratio = b.median / a.median
    digits = 3 if ratio < 1.1 or ratio * noise < 0.005 else 2
    return f"{ratio:.{digits}f} {signs.plus_minus} {ratio * noise:.{digits}f} times"


def _unranked(rows: Sequence[Unranked], signs: Marks, now_ns: int) -> RenderableType:
    columns = [
        Column("submission", wrap=True),
        Column("author", order=2, wrap=True),
        Column("verdict", order=3),
        Column("why", wrap=True),
        Column("age", right=True, order=1),
        Column("run", order=4),
    ]
    return Fitted(columns, [_unranked_row(row, signs, now_ns) for row in rows])


def _unranked_row(row: Unranked, signs: Marks, now_ns: int) -> list[Cell]:
    return [
        plain(row.submission, signs.encoding),
        plain(row.author, signs.encoding),
        row.verdict.value,
        plain(row.reason, signs.encoding),
        text.age(row.created_ns, now_ns),
        plain(row.run, signs.encoding),
    ]
