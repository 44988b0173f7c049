"""The samples that a published time was made of, back from a run's raw blocks.  Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness import stats
from harness.leaderboard import is_time
from harness.model import Clock, Timing
from harness.timing import Estimate

#: A judge's clock calibrates away a constant of each worker process; what lies further from the
#: worker's own events than this is `tampered` when it is measured (calibration.SINGLE_SLACK_NS).
OFFSET_NS = 5_000.0
#: And this share of the call: longer ones may overlap with the bracket's own work.
OFFSET_SHARE = 0.02


def raw(timing: Timing, clock: Clock) -> tuple[tuple[float, ...], ...]:
    """Single calls as they were recorded, by worker process, in ns and in order of time.

    On a CPU they are the published samples.  On a GPU a constant of the process, its calibrated
    offset, lies between the two.
    """
    return _singles(timing, judged=clock is Clock.HOST)


def judged(timing: Timing) -> tuple[tuple[float, ...], ...]:
    """The same single calls by the judge's own clock, its overhead taken off."""
    return _singles(timing, judged=True)


def _singles(timing: Timing, *, judged: bool) -> tuple[tuple[float, ...], ...]:
    found: dict[int, list[float]] = {}
    for block in timing.blocks:
        if block.calls == 1:
            times = block.window_ns if judged else block.claimed_ns
            found.setdefault(block.process, []).extend(map(float, times))
    return tuple(tuple(values) for _, values in sorted(found.items()) if values)


def estimates(timing: Timing, clock: Clock) -> tuple[Estimate, ...] | None:
    """The published samples by process; None when blocks and published medians do not match.

    A process's offset is what its published median is away from its raw one.
    """
    blocks = raw(timing, clock)
    medians = timing.process_medians_ns
    if not blocks or len(blocks) != len(medians) or not all(map(is_time, medians)):
        return None
    if not all(is_time(v) for values in blocks for v in values):
        return None
    made = []
    for process, (values, published_ns) in enumerate(zip(blocks, medians, strict=True)):
        offset = 0.0 if clock is Clock.HOST else published_ns - stats.median(values)
        shifted = tuple(max(1.0, v + offset) for v in values)
        made.append(Estimate(process, shifted, timing.judge_ns))
    return tuple(made)


def published(timing: Timing, clock: Clock) -> tuple[float, ...]:
    """All samples on the scale of the published time; empty where they cannot be found."""
    return tuple(v for one in estimates(timing, clock) or () for v in one.samples_ns)


def centre_of(values: Sequence[float]) -> float:
    """The published statistic of processes' medians."""
    return math.exp(stats.centre_of([math.log(v) for v in values]))
