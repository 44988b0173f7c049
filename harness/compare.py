"""Two submissions measured side by side: is one faster, and could this machine tell?

Runs alternate A B B A, each in fresh processes.  Within such a quartet a steady drift of the
machine cancels; quartets are the independent repetitions.  The two runs of A at its ends are A
against itself: what they differ by is no property of A.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness import stats
from harness.model import Run, Shape, Stop, Verdict
from harness.stats import Change, Comparison

ORDER = "ABBA"

#: Significance after Holm's correction, over the shapes.
_ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class ShapeResult:
    """One shape: both times, and the time of A as a share of B's."""

    shape: Shape
    a_ns: float
    b_ns: float
    change: Comparison


@dataclass(frozen=True, slots=True)
class Result:
    """A comparison; `floor` is A against A by the same procedure."""

    a: str
    b: str
    device: str
    quartets: int
    shapes: tuple[ShapeResult, ...]
    overall: Comparison
    floor: Comparison
    min_effect: float  # what A differed from itself by, at least half a percent
    cut_short: bool  # whether its budget ended the sampling of a run

    @property
    def reliable(self) -> bool:
        """Whether A could not be told from itself, as it should be."""
        return self.floor.outcome is Change.INDISTINGUISHABLE


def measure(judge: Callable[[str, int], Run], repeats: int) -> tuple[list[list[Run]], Run | None]:
    """Have `judge(side, number)` make the runs of `repeats` quartets; stop at one that fails.

    Returns the quartets, each as its four runs in order, and the run that did not pass, if any.
    """
    quartets: list[list[Run]] = []
    for number in range(repeats):
        quartet: list[Run] = []
        for place, side in enumerate(ORDER):
            run = judge(side, number * len(ORDER) + place)
            if run.verdict is not Verdict.PASSED:
                return quartets, run
            quartet.append(run)
        quartets.append(quartet)
    return quartets, None


def evaluate(quartets: Sequence[Sequence[Run]]) -> Result:
    """Compare from at least two quartets.  Raises ValueError when a time is missing."""
    first = quartets[0]
    shapes = [c.case.shape for c in first[0].cases if c.timing is not None]
    logs = [[[_log(run, shape) for shape in shapes] for run in quartet] for quartet in quartets]
    scores = [[stats.mean(run) for run in quartet] for quartet in logs]
    floor = stats.compare_ratios([q[3] - q[0] for q in scores])
    # What A differs from itself by is no difference between A and B.
    least = max(stats.MIN_EFFECT, math.expm1(abs(math.log(floor.ratio))))
    columns = [[[run[i] for run in quartet] for quartet in logs] for i in range(len(shapes))]
    changes = [
        stats.compare_ratios([_unit(q) for q in column], min_effect=least) for column in columns
    ]
    sure = stats.holm([change.p for change in changes])
    return Result(
        a=first[0].submission.name,
        b=first[1].submission.name,
        device=first[0].device.name,
        quartets=len(quartets),
        shapes=tuple(
            ShapeResult(shape, _time(column, (0, 3)), _time(column, (1, 2)), _kept(change, p))
            for shape, column, change, p in zip(shapes, columns, changes, sure, strict=True)
        ),
        overall=stats.compare_ratios([_unit(q) for q in scores], min_effect=least),
        floor=floor,
        min_effect=least,
        cut_short=any(map(_cut_short, itertools.chain(*quartets))),
    )


def _cut_short(run: Run) -> bool:
    return any(c.timing is not None and c.timing.stop is Stop.BUDGET for c in run.cases)


def _unit(quartet: Sequence[float]) -> float:
    """Log of A's time over B's in one quartet; what changes steadily cancels."""
    a, b, b_again, a_again = quartet
    return (a + a_again) / 2 - (b + b_again) / 2


def _kept(change: Comparison, p: float) -> Comparison:
    return change if p < _ALPHA else change._replace(outcome=Change.INDISTINGUISHABLE)


def _time(column: Sequence[Sequence[float]], places: tuple[int, int]) -> float:
    return math.exp(stats.mean([quartet[place] for quartet in column for place in places]))


def _log(run: Run, shape: Shape) -> float:
    for case in run.cases:
        if case.timing is not None and case.case.shape == shape:
            return math.log(case.timing.median_ns)
    raise ValueError(f"run {run.id} has no time for {shape.label}")
