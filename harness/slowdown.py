"""Is a submission slower than its baseline by more than allowed?  Pairs of times -> three answers.

Base and head are timed in turn, in fresh processes, in A B B A order: what the machine drifts by
then cancels, and neighbours in time make the pair whose ratio counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness import stats
from harness.model import Run, Shape, Verdict

#: A group of four pairs: base head, head base, base head, head base.  Neighbours of one side are
#: two processes of one run, which starts one judge fewer.
GROUP = (("base", 1), ("head", 2), ("base", 2), ("head", 2), ("base", 1))
#: Groups at most.  After each the gate looks at the times; what is ambiguous is measured on.
LOOKS = 3
#: Pairs that an answer needs, however little time there is, and the most that are taken.
LEAST_PAIRS = 2
MOST_PAIRS = LOOKS * sum(processes for _, processes in GROUP) // 2
#: An interval that reaches to so many times the estimate is Student's way to say that nothing is
#: known: two pairs on a busy CPU gave -100% to +76,540%.
OPEN = 4.0
#: Chance of a false alarm about a submission that is exactly as much slower as is allowed, over all
#: its shapes and all looks together; and of letting a shape pass that is slower than allowed.
ALPHA = 0.05

#: Times one side, "base" or "head", in so many fresh processes on some shapes: its run in mode
#: benchmark.
Measure = Callable[[str, int, tuple[Shape, ...]], Run]


class Pace(StrEnum):
    """What is known about one shape."""

    OK = "no slower"
    SLOWER = "slower"
    AMBIGUOUS = "ambiguous"


class Absent(StrEnum):
    """What a comparison lacks without the submission's fault."""

    ENTRY = "entry"  # the baseline does not hold this submission
    BASELINE = "baseline"  # the baseline does not run here


@dataclass(frozen=True, slots=True)
class ShapeSpeed:
    """Time of the submission / time of the baseline on one shape.

    The interval is the one that decides: slower lies above what is allowed, no slower below, and
    ambiguous holds it.
    """

    shape: Shape
    pace: Pace
    ratio: float
    low: float
    high: float
    p: float  # that it is no slower than allowed, corrected over shapes and looks
    pairs: int

    @property
    def percent(self) -> str:
        """`+3.10% (+2.80% to +3.40%)`; of an interval that says nothing, why.

        One that is open above still says that a shape is slower: its lower end decided.
        """
        change, low, high = map(_percent, (self.ratio, self.low, self.high))
        if self.high > self.ratio * OPEN:
            if self.pace is Pace.SLOWER:
                return f"{change} (at least {low})"
            return f"{change} ({self.pairs} pairs this far apart give no interval)"
        return f"{change} ({low} to {high})"


@dataclass(frozen=True, slots=True)
class Speed:
    """A submission beside its baseline."""

    baseline: str
    max_percent: float
    shapes: tuple[ShapeSpeed, ...] = ()
    message: str = ""  # why there is no comparison
    absent: Absent | None = None  # what there is no time of, where it is not the submission's own

    def at(self, pace: Pace) -> tuple[ShapeSpeed, ...]:
        """The shapes of which this is known."""
        return tuple(shape for shape in self.shapes if shape.pace is pace)


def compare(
    measure: Measure,
    shapes: Sequence[Shape],
    *,
    baseline: str,
    max_percent: float,
    time_left: Callable[[], bool],
) -> Speed:
    """Time both sides in A B B A order until all shapes are decided, or looks or time are used up.

    One shape that is slower decides for all, and a shape that is not is timed no further.  Two
    pairs, five processes, are timed whatever they take: from fewer nothing follows.
    A side that does not pass, or lacks a shape, ends it with a message: a missing time is no pass.
    """
    ratios: dict[Shape, list[float]] = {shape: [] for shape in shapes}
    found: tuple[ShapeSpeed, ...] = ()
    open_shapes = tuple(shapes)
    for _ in range(LOOKS):
        times: dict[str, dict[Shape, list[float]]] = {"base": {}, "head": {}}
        for side, processes in GROUP:
            if (found or _pairs(times) >= LEAST_PAIRS) and not time_left():
                break
            run = measure(side, processes, open_shapes)
            if problem := _problem(side, baseline, run, open_shapes, processes):
                absent = Absent.BASELINE if side == "base" else None
                return Speed(baseline, max_percent, found, problem, absent)
            for shape, medians in times_of(run).items():
                times[side].setdefault(shape, []).extend(medians)
        for shape in open_shapes:
            # Out of time within a group, one side has a time more.
            pairs = zip(times["head"].get(shape, ()), times["base"].get(shape, ()), strict=False)
            ratios[shape] += [math.log(head / base) for head, base in pairs]
        found = decide(ratios, max_percent)
        open_shapes = tuple(s.shape for s in found if s.pace is Pace.AMBIGUOUS)
        if not open_shapes or any(s.pace is Pace.SLOWER for s in found) or not time_left():
            break
    return Speed(baseline, max_percent, found)


def _pairs(times: dict[str, dict[Shape, list[float]]]) -> int:
    """How many pairs of times a group has of each shape so far."""
    return min(max(map(len, side.values()), default=0) for side in times.values())


def times_of(run: Run) -> dict[Shape, tuple[float, ...]]:
    """Published time of each shape that was timed, in ns, one for each worker process in order."""
    timed = ((c.case.shape, c.timing) for c in run.cases)
    return {shape: timing.process_medians_ns for shape, timing in timed if timing is not None}


def _problem(side: str, baseline: str, run: Run, shapes: Sequence[Shape], processes: int) -> str:
    who = f"the baseline {baseline}" if side == "base" else "it"
    if run.verdict is not Verdict.PASSED:
        return f"{who} could not be timed: {run.verdict}: {run.message}"
    times = times_of(run)
    missing = [shape for shape in shapes if len(times.get(shape, ())) != processes]
    if missing:
        return f"{who} has no time on {len(missing)} of {len(shapes)} shapes: {missing[0].label}"
    return ""


def decide(ratios: dict[Shape, list[float]], max_percent: float) -> tuple[ShapeSpeed, ...]:
    """One answer a shape from log ratios head / base, of some shapes more than of others.

    Raises ValueError below two pairs.  The lower end is Student's at ALPHA over all shapes and
    looks (Bonferroni), the upper one over looks alone, since every shape has to stay below.

    An interval of one shape at one look could lie above what is allowed and yet be no reason to
    fail: it would raise an alarm about 9% of submissions exactly as slow as is allowed (three
    shapes), and ALPHA is promised.  So what is shown is corrected, not what is decided loosened.
    """
    allowed = math.log1p(max_percent / 100)
    tests = LOOKS * len(ratios)
    found = []
    for shape, values in ratios.items():
        centre, spread = stats.mean(values), stats.sample_std(values)
        if spread is None:
            raise ValueError("a comparison needs at least two pairs of times")
        error, freedom = spread / math.sqrt(len(values)), len(values) - 1
        low = centre - _quantile(freedom, ALPHA / tests) * error
        high = centre + _quantile(freedom, ALPHA / LOOKS) * error
        pace = Pace.SLOWER if low > allowed else Pace.OK if high <= allowed else Pace.AMBIGUOUS
        p = min(1.0, tests * _p_above(centre, error, freedom, allowed))
        ends = math.exp(centre), math.exp(low), math.exp(high)
        found.append(ShapeSpeed(shape, pace, *ends, p, len(values)))
    return tuple(found)


def _quantile(freedom: int, beyond: float) -> float:
    """What Student's t exceeds with this chance."""
    from scipy.special import stdtrit

    return float(-stdtrit(freedom, beyond))


def _p_above(centre: float, error: float, freedom: int, allowed: float) -> float:
    """Chance of a mean this high or higher if the true log ratio were `allowed`: Student's."""
    from scipy.special import stdtr

    if error == 0:
        return 1.0 if centre <= allowed else 0.0
    return float(stdtr(freedom, (allowed - centre) / error))


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.2f}%"
