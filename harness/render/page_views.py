"""What the page shows of a board, worked out before the template sees it.  Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness import leaderboard, samples, stats
from harness.model import (
    Board,
    CaseKind,
    CaseResult,
    Run,
    ShapeStanding,
    Standing,
    Summary,
    Verdict,
)
from harness.render import axes, histogram, plot, text
from harness.render.progression import progression
from harness.render.standings import called, times_as_long

#: The standings' axis ends at this many times the fastest entry's time.
_REACH = 4.0


@dataclass(frozen=True, slots=True)
class Span:
    """Where an interval lies on its board's common axis, in percent."""

    low: float
    width: float
    at: float
    beyond: bool  # slower than the axis shows


@dataclass(frozen=True, slots=True)
class Timed:
    """One ranked shape of one submission."""

    case: CaseResult
    shape: ShapeStanding
    times: tuple[float, ...]  # some of its samples, in the order they were taken
    histogram: histogram.Histogram | None


@dataclass(frozen=True, slots=True)
class Family:
    """The test cases of one input family."""

    name: str
    passed: int
    total: int
    max_abs: float | None
    max_ulp: float | None


@dataclass(frozen=True, slots=True)
class Entry:
    """A standing, its place on the axis, and its run unless that is damaged."""

    standing: Standing
    score: str
    span: Span
    run: Run | None
    timed: tuple[Timed, ...]
    families: tuple[Family, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A board as the template shows it."""

    key: str
    board: Board
    entries: tuple[Entry, ...]
    floor: float | None  # percent on the axis
    ticks: tuple[tuple[float, str], ...]
    figures: tuple[tuple[str, str], ...]  # kind, key of the figure
    shapes: tuple[str, ...]
    ties: int
    headline: tuple[str, str] | None  # whom, and what is said of them

    @property
    def fastest(self) -> Entry:
        return min(self.entries, key=lambda e: e.standing.score_ns)

    @property
    def light(self) -> bool:
        return any(e.standing.light_speed is not None for e in self.entries)

    @property
    def compared(self) -> bool:
        """Whether the board has a baseline."""
        return any(e.standing.speedup is not None for e in self.entries)

    @property
    def has_strips(self) -> bool:
        return any(kind.startswith("strips") for kind, _ in self.figures)


def by_board(history: Iterable[Summary]) -> dict[tuple[str, str], list[Summary]]:
    """The runs that could stand or could have stood, by task and device."""
    found: dict[tuple[str, str], list[Summary]] = {}
    for row in history:
        if leaderboard.ineligible(row) is None:
            found.setdefault((row.task, row.device), []).append(row)
    return found


def view(
    board: Board,
    key: str,
    runs: Mapping[str, Run],
    past: Sequence[Summary],
    figures: dict[str, axes.Figure],
    now_ns: int,
) -> View:
    """What the template shows of a board; adds its figures to `figures`, named after `key`."""
    standings = board.standings
    axis = _Axis(standings)
    scores = text.durations([s.score_ns for s in standings])
    entries = tuple(
        _entry(s, score, axis, runs.get(s.run)) for s, score in zip(standings, scores, strict=True)
    )
    shapes = tuple(text.plain(s.shape.label) for s in standings[0].shapes) if standings else ()
    made = _figures(board, entries, past, now_ns)
    figures.update({f"{key}-{name}": figure for name, figure in made.items()})
    return View(
        key=key,
        board=board,
        entries=entries,
        floor=axis.place(axis.floor) if axis.floor is not None else None,
        ticks=tuple((axis.place(v), text.duration(v, digits=2)) for v in axis.marks),
        figures=tuple((name, f"{key}-{name}") for name in made),
        shapes=shapes,
        ties=_tied(standings),
        headline=_headline(standings),
    )


def _tied(standings: Sequence[Standing]) -> int:
    ranks = [s.rank for s in standings]
    return sum(ranks.count(rank) > 1 for rank in ranks)


def _headline(standings: Sequence[Standing]) -> tuple[str, str] | None:
    """Who leads and by how much, as a sentence that begins with who, who is any text."""
    first = [s for s in standings if s.rank == 1]
    rest = [s for s in standings if s.rank > 1]
    if not first:
        return None
    names = Counter(s.submission for s in standings)
    leader = called(first[0], names)
    if len(first) > 1:
        others = text.listing([text.plain(called(s, names))[:60] for s in first[1:]])
        return leader, f"shares the lead with {others}: too close to call"
    if not rest:
        return leader, "is the only entry so far"
    second = min(rest, key=lambda s: s.score_ns)
    other = text.plain(called(second, names))[:60]
    longer = times_as_long(first[0], second, text.marks("utf-8"))
    return leader, f"leads; {other} takes {longer} as long"


class _Axis:
    """The log axis that all intervals of a board share, from just below the floor."""

    def __init__(self, standings: Sequence[Standing]) -> None:
        floors = [s.score_ns * s.floor_share for s in standings if s.floor_share]
        self.floor = stats.median(floors) if floors else None
        ends = [v for s in standings for v in (s.low_ns, s.high_ns) if leaderboard.is_time(v)]
        ends += [self.floor] if self.floor is not None else []
        low, high = (min(ends), max(ends)) if ends else (1.0, 10.0)
        # Beyond this an entry is an arrow: one slow baseline would press all others together.
        high = min(high, _REACH * min((s.score_ns for s in standings), default=low))
        self._low, self._high = math.log(low) - 0.03, math.log(high) + 0.03
        self.marks = axes.ticks(low, high)[:5]

    def place(self, ns: float) -> float:
        share = (math.log(ns) - self._low) / (self._high - self._low)
        return round(100 * min(1.0, max(0.0, share)), 2)

    def span(self, s: Standing) -> Span:
        low, high = self.place(s.low_ns), self.place(s.high_ns)
        beyond = math.log(s.score_ns) > self._high
        return Span(low, round(high - low, 2), self.place(s.score_ns), beyond)


def _entry(s: Standing, score: str, axis: _Axis, run: Run | None) -> Entry:
    timed = _timed(run) if run is not None else ()
    families = _families(run.cases) if run is not None else ()
    return Entry(s, score, axis.span(s), run, timed, families)


def _timed(run: Run) -> tuple[Timed, ...]:
    shapes = iter(leaderboard.summarise(run).shapes)
    made: list[Timed] = []
    for case in run.cases:
        if case.case.kind is CaseKind.BENCHMARK and (timing := case.timing) is not None:
            times = samples.published(timing, run.clock)
            shown = histogram.histogram(timing, times)
            made.append(Timed(case, next(shapes), tuple(histogram.thin(times)), shown))
    return tuple(made)


def _families(cases: Sequence[CaseResult]) -> tuple[Family, ...]:
    found: dict[str, list[CaseResult]] = {}
    for case in cases:
        if case.case.kind is CaseKind.TEST:
            found.setdefault(case.case.inputs, []).append(case)
    return tuple(
        Family(
            name,
            sum(case.verdict is Verdict.PASSED for case in group),
            len(group),
            max((c.max_abs for case in group if (c := case.outcome.check)), default=None),
            max((c.max_ulp for case in group if (c := case.outcome.check)), default=None),
        )
        for name, group in found.items()
    )


def _figures(
    board: Board, entries: Sequence[Entry], past: Sequence[Summary], now_ns: int
) -> dict[str, axes.Figure]:
    """The figures of a board by name; one that would be empty is left out."""
    made: dict[str, axes.Figure] = {}
    current = {s.run for s in board.standings}
    digests = {row.task_digest for row in past if row.id in current}
    led = progression([row for row in past if row.task_digest in digests], now_ns)
    if led is not None:
        made["progression"] = led
    for i in range(len(board.standings[0].shapes) if board.standings else 0):
        made[f"bars-{i}"] = plot.bars(board, i)
        rows = [
            (e.standing, t.shape, t.times)
            for e in entries[: plot.SHOWN]
            if len(e.timed) > i
            for t in [e.timed[i]]
            if t.times and leaderboard.is_time(t.shape.median_ns)
        ]
        if rows:
            made[f"strips-{i}"] = plot.strips(rows)
    return made
