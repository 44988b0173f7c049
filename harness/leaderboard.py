"""Stored runs to boards: who is ahead, by how much, and how sure that is.  Pure.

The store hands over summaries; the renderers word what comes out.  Nothing in a summary is trusted:
a row may have been written by an older version, by hand, or by a stranger.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from harness import stats
from harness.model import (
    UNRANKED_DOUBTS,
    Board,
    CaseKind,
    Doubt,
    Mode,
    Run,
    Shape,
    ShapeStanding,
    Standing,
    Summary,
    Task,
    Unranked,
    Verdict,
)

#: What every speedup is relative to when a board has it: (author, submission).
BASELINE = ("baseline", "torch_dequant")

#: Times outside this range are no times: in a picosecond light crosses 0.3 mm, and 1e18 ns are 31
#: years.  Catches zeros, negatives, NaN, infinities and denormals alike.
SHORTEST_NS, LONGEST_NS = 1e-3, 1e18

#: What the machine is to blame for, of what keeps a run off its board.
_OF_THE_MACHINE = UNRANKED_DOUBTS - {Doubt.EMULATED}

#: (author, submission): one of them has one standing on a board, whatever the file's text was.
_Entrant: TypeAlias = tuple[str, str]

#: Log of a score and half of its interval's width on that scale.
_Mark: TypeAlias = tuple[float, float]


def is_time(value: float | None) -> bool:
    """Whether a number can be the time of something, in nanoseconds."""
    return isinstance(value, int | float) and SHORTEST_NS <= value < LONGEST_NS


def summarise(run: Run) -> Summary:
    """Reduce a run to what a standing needs.  A score that is no time becomes None."""
    timed = [c for c in run.cases if c.case.kind is CaseKind.BENCHMARK and c.timing is not None]
    shapes = tuple(
        ShapeStanding(c.case.shape, t.median_ns, t.low_ns, t.high_ns, t.floor_ns)
        for c in timed
        if (t := c.timing) is not None
    )
    score = low = high = None
    if run.score_ns is not None and is_time(run.score_ns) and shapes and _fit(shapes):
        medians = [c.timing.process_medians_ns for c in timed if c.timing is not None]
        width = stats.half_width(stats.score_interval([_interval(s) for s in shapes], medians))
        score = run.score_ns
        low, high = score * math.exp(-width), score * math.exp(width)
    passed = [c for c in run.cases if c.verdict is Verdict.PASSED]
    return Summary(
        id=run.id,
        task=run.task,
        task_digest=run.task_digest,
        mode=run.mode,
        verdict=run.verdict,
        message=run.message,
        created_ns=run.created_ns,
        submission=run.submission.name,
        author=run.submission.author,
        sha256=run.submission.sha256,
        device_kind=run.device.kind,
        device=run.device.name,
        isolation=run.isolation,
        clock=run.clock,
        doubts=run.doubts,
        custom_shapes=run.custom_shapes,
        tests=sum(c.case.kind is CaseKind.TEST for c in passed),
        failed=len(run.cases) - len(passed),
        score_ns=score,
        low_ns=low,
        high_ns=high,
        shapes=shapes,
    )


def ineligible(run: Run | Summary, shapes: Sequence[Shape] | None = None) -> str | None:
    """Why a run cannot stand on a board, in words, or None when it can.

    Eligible means that every required part exists and passed, not that no failure is known: a
    ranked run, tests checked, each of the task's ranked `shapes` timed (any, when not known).
    """
    row = summarise(run) if isinstance(run, Run) else run
    if row.verdict is not Verdict.PASSED:
        return str(row.verdict)
    if row.mode is not Mode.RANKED:
        return f"made in mode {row.mode}"
    if row.custom_shapes:
        return "timed on shapes of its own"
    for doubt in row.doubts:
        if doubt in UNRANKED_DOUBTS:
            return f"never ranked: {doubt}"
    if row.failed or row.tests <= 0:
        return f"{row.failed} cases did not pass" if row.failed else "no test case was checked"
    return _without_times(row, shapes)


def unfit(row: Summary, known: Task | None) -> str | None:
    """`ineligible`, also by the shapes and the test cases of `known` where the run is of it."""
    if known is None or (row.task, row.task_digest) != (known.name, known.digest):
        return ineligible(row)
    reason = ineligible(row, known.ranked)
    cases = len(known.tests) + len(known.hard)
    if reason is None and row.tests != cases:
        return f"{row.tests} of the task's {cases} test cases were checked"
    return reason


def _without_times(row: Summary, shapes: Sequence[Shape] | None) -> str | None:
    timed = [s.shape for s in row.shapes]
    if shapes is not None:
        for shape in shapes:
            if shape not in timed:
                return f"no time for {shape.label}"
        if len(timed) != len(shapes):
            return "timed on other shapes than the task ranks"
    if not timed or not _fit(row.shapes):
        return "a time is missing or is not a positive finite number"
    if row.score_ns is None or not is_time(row.score_ns):
        return "its score is not a positive finite time"
    if not (is_time(row.low_ns) and is_time(row.high_ns)):
        return "its score has no interval"
    if abs(math.log(row.score_ns / _score(row.shapes))) > 1e-6:
        return "its score does not follow from its times"
    return None


def precedence(row: Summary) -> tuple[bool, int, str]:
    """The order in which runs come; the greatest of an entrant's that can stand is its standing.

    The later one comes before the earlier one, and what nobody vouches for after all others: its
    names, its times and its date are whatever somebody wrote.
    """
    return Doubt.UNSIGNED_IMPORT not in row.doubts, row.created_ns, row.id


def refutes(row: Summary) -> bool:
    """Whether a run speaks against others of its very file: it was to count, and did not pass.

    Whatever the verdict, for a submission can bring about each, and `emulated` as well; what the
    machine fails at makes no run.
    """
    return (
        row.mode is Mode.RANKED
        and not row.custom_shapes
        and not any(doubt in _OF_THE_MACHINE for doubt in row.doubts)
        and (row.verdict is not Verdict.PASSED or Doubt.EMULATED in row.doubts)
    )


def refuted(rows: Iterable[Summary]) -> Mapping[str, str]:
    """Run id -> id of a run that comes before it, of the same entrant's very file, and refutes it.

    All rows are of one task and device.
    """
    failed: dict[tuple[str, ...], str] = {}
    found: dict[str, str] = {}
    for row in sorted(rows, key=precedence, reverse=True):
        file = (row.task_digest, row.author, row.submission, row.sha256)
        if file in failed:
            found[row.id] = failed[file]
        elif refutes(row):
            failed[file] = row.id
    return found


def boards(
    rows: Iterable[Summary],
    *,
    task: Task | None = None,
    baseline: tuple[str, str] = BASELINE,
) -> tuple[Board, ...]:
    """One board per task and device; CUDA devices first, then by name.

    A standing is the latest eligible ranked run of (author, submission): a later, slower run
    replaces a faster one, for a best of N rewards persistence.  A later ranked run of the very same
    file that failed takes the standing away, or who passed once would only have to fail from then
    on; one of another text takes none.  What was imported unsigned comes after all other runs.
    Entries of one rank are in order of score.
    All standings of a board ran the same version of the task: that of `task` where its name fits,
    else that of the first eligible run in that order.  What has no standing is in `unranked`,
    newest first.
    """
    groups: dict[tuple[str, str, str], list[Summary]] = {}
    for row in rows:
        groups.setdefault((row.task, row.device_kind, row.device), []).append(row)
    order = sorted(groups, key=lambda key: (key[0], key[1] != "cuda", key[2], key[1]))
    return tuple(_board(groups[key], task, baseline) for key in order)


def ranks(made: Iterable[Board]) -> Mapping[str, int]:
    """Run id -> rank, for the runs that hold a standing."""
    return {s.run: s.rank for board in made for s in board.standings}


def reasons(made: Iterable[Board]) -> Mapping[str, str]:
    """Run id -> why it holds no standing, for the runs that hold none."""
    return {one.run: one.reason for board in made for one in board.unranked}


class Place(NamedTuple):
    """Where a run stands: nowhere, unless it holds a standing."""

    standing: Standing | None = None
    of: int | None = None  # entries on its board
    has_namesake: bool = False  # another entry of the board has the submission's name


NOWHERE = Place()


def place(made: Iterable[Board], run: str) -> Place:
    """The place of a run, by its id, on the boards."""
    for board in made:
        for standing in board.standings:
            if standing.run == run:
                names = [s.submission for s in board.standings]
                return Place(standing, len(names), names.count(standing.submission) > 1)
    return NOWHERE


def light_speed(shapes: Sequence[ShapeStanding]) -> float | None:
    """Geometric mean of published light speed / time; None when a shape has none."""
    return _share([s.shape.light_speed_ns for s in shapes], shapes)


def floor_share(shapes: Sequence[ShapeStanding]) -> float | None:
    """Geometric mean of the measured floor / time; None when a shape has none."""
    return _share([s.floor_ns for s in shapes], shapes)


def _board(rows: list[Summary], task: Task | None, baseline: _Entrant) -> Board:
    rows = sorted(rows, key=precedence, reverse=True)
    known = task if task is not None and task.name == rows[0].task else None
    gone = refuted(rows)
    digest = known.digest if known else _newest_digest(r for r in rows if r.id not in gone)
    standing: dict[_Entrant, Summary] = {}
    unranked: list[Unranked] = []
    for row in rows:
        entrant = (row.author, row.submission)
        reason = unfit(row, known)
        if reason is None and row.task_digest != digest:
            reason = "another version of the task"
        elif reason is None and row.id in gone:
            reason = f"the same file did not pass in {gone[row.id]}"
        elif reason is None and entrant in standing:
            reason = _superseded(row, standing[entrant])
        if row.verdict is not Verdict.PASSED and row.message:
            reason = row.message
        if reason is None:
            standing[entrant] = row
        else:
            unranked.append(_unranked(row, reason))
    unranked.sort(key=lambda one: (one.created_ns, one.run), reverse=True)
    return Board(
        rows[0].task, rows[0].device, _standings([*standing.values()], baseline), tuple(unranked)
    )


def _newest_digest(in_order: Iterable[Summary]) -> str:
    return next((r.task_digest for r in in_order if ineligible(r) is None), "")


def _superseded(row: Summary, by: Summary) -> str:
    if precedence(row)[0] < precedence(by)[0]:
        return f"nobody vouches for it, and {by.id} was made here or is signed"
    return f"superseded by {by.id}"


def _unranked(row: Summary, reason: str) -> Unranked:
    return Unranked(row.id, row.submission, row.author, row.created_ns, row.verdict, reason)


def _standings(rows: list[Summary], baseline: _Entrant) -> tuple[Standing, ...]:
    """Rank the rows of one board: an entry's rank is one more than the number of those ahead of it.

    So an entry that is added betters no other's rank, and touches none that is faster.  Each that
    is slower and no noisier goes down by one where the new one is ahead of it, else stays.  Slower
    and noisier ones may also fall behind those that the new one was found to be behind.
    """
    rows = sorted(rows, key=_by_score)
    marks = [_mark(row) for row in rows]
    widest = max((half for _, half in marks), default=0.0)
    base = next((r.score_ns for r in rows if (r.author, r.submission) == baseline), None)
    beaten_from = Counter(_first_behind(marks, i) for i in range(len(marks)))
    made: list[Standing] = []
    rank = 1
    for i, row in enumerate(rows):
        rank += beaten_from[i]
        # By the whole of both noises, of which the rank counts a part.
        low = min(1 + i - _open(marks, i, -1, widest), rank)
        high = max(1 + i + _open(marks, i, 1, widest), rank)
        made.append(_standing(row, (rank, low, high), base))
    return tuple(made)


def _by_score(row: Summary) -> tuple[float, float, int, str]:
    """The order of a board; of equal scores the surer one, then the older one, is first."""
    score, half = _mark(row)
    return score, half, row.created_ns, row.id


def _mark(row: Summary) -> _Mark:
    score, low, high = row.score_ns or 1.0, row.low_ns or 1.0, row.high_ns or 1.0
    return math.log(score), stats.half_width(stats.Interval(score, low, high))


def _first_behind(marks: Sequence[_Mark], index: int) -> int:
    """The first entry that this one is ahead of; it is ahead of all from there on.

    Of those too whose own noise might excuse them: nobody is ranked before who is faster, or a
    submission would better its rank by being noisy.
    """
    for i in range(index + 1, len(marks)):
        if _beats(marks[index], marks[i]):
            return i
    return len(marks)


def _beats(a: _Mark, b: _Mark) -> bool:
    """Whether a is faster than b beyond noise: all of its own, and of b's no more than as much.

    Or 2% where that is more.  Who is slow and erratic would not be behind anybody otherwise; and
    who is fast and erratic is ahead of none that it cannot be told from, be it by luck or to move
    others.
    """
    return stats.beyond_noise(b[0] - a[0], a[1], min(b[1], max(a[1], stats.NOISY_SHARE)))


def _open(marks: Sequence[_Mark], index: int, step: int, widest: float) -> int:
    """How many entries on one side the noise leaves undecided; looks no further than it reaches."""
    (score, half), count = marks[index], 0
    i = index + step
    while 0 <= i < len(marks) and not stats.beyond_noise(abs(marks[i][0] - score), half, widest):
        count += not stats.beyond_noise(abs(marks[i][0] - score), half, marks[i][1])
        i += step
    return count


def _standing(row: Summary, rank: tuple[int, int, int], base: float | None) -> Standing:
    score = row.score_ns or math.nan  # eligible rows have one
    return Standing(
        rank=rank[0],
        rank_low=rank[1],
        rank_high=rank[2],
        submission=row.submission,
        author=row.author,
        score_ns=score,
        low_ns=row.low_ns or score,
        high_ns=row.high_ns or score,
        speedup=base / score if base else None,
        # The published bounds are a GPU's: on a processor they say nothing.
        light_speed=None if row.device_kind == "cpu" else light_speed(row.shapes),
        floor_share=floor_share(row.shapes),
        shapes=row.shapes,
        run=row.id,
        created_ns=row.created_ns,
        doubts=row.doubts,
        isolation=row.isolation,
        clock=row.clock,
    )


def _share(bounds: Sequence[float | None], shapes: Sequence[ShapeStanding]) -> float | None:
    """Geometric mean of bound / time; None when a shape has no bound."""
    known = [b for b in bounds if b is not None and is_time(b)]
    if len(known) != len(shapes) or not known or not _fit(shapes):
        return None
    return stats.geometric_mean(known) / _score(shapes)


def _score(shapes: Sequence[ShapeStanding]) -> float:
    return stats.geometric_mean([s.median_ns for s in shapes])


def _interval(shape: ShapeStanding) -> stats.Interval:
    return stats.Interval(shape.median_ns, shape.low_ns, shape.high_ns)


def _fit(shapes: Sequence[ShapeStanding]) -> bool:
    """Whether every time of the shapes is one, and lies inside its interval."""
    return all(
        is_time(s.median_ns)
        and is_time(s.low_ns)
        and is_time(s.high_ns)
        and s.low_ns <= s.median_ns <= s.high_ns
        for s in shapes
    )
