"""How long to sample, when to stop, and what the samples say.  No clock and no device in here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness import stats
from harness.model import Block, Budget, Doubt, Stop, Timing

#: Inputs and their expected outputs are dear on a CPU, so few samples have to do; the times are for
#: 2 cores, where the three ranked shapes of the shipped task must end well inside two minutes.
CPU_BUDGET = Budget(processes=1, min_samples=5, max_samples=30, time_ns=30_000_000_000)
#: Several processes, since the samples of one share addresses and clocks: as many as half a minute
#: allows.  But on an H200 most of what 30 samples in each of 5 left (0.6% between the scores of ten
#: runs) was the samples' own noise.
CUDA_BUDGET = Budget(
    processes=12,
    min_samples=50,
    max_samples=120,
    time_ns=30_000_000_000,
    fewest=5,
)
#: A time under this share of the measured floor is implausible.  Not 1: bulk copies read 2% faster
#: than the loads that measure the floor (docs/kernels.md).
FLOOR_SHARE = 0.95
#: Fewer samples than this say little about the tails, whatever the interval.
FEW_SAMPLES = 30
#: More time would have helped only where the interval is wider than this.
BUDGET_SHARE = 0.01
#: Consecutive windows compared to see whether the time still moves during warm-up.
WARM_GROUP = 5
WARM_SHARE = 0.01


class StoppingRule:
    """When to end sampling in one process: arithmetic alone, so that every path can be tested.

    Looks at the interval only when the number of samples has doubled since the last look: looking
    after each sample stops on lucky streaks (TIMING 2.8: coverage falls to 25 to 66%).
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._samples: list[float] = []
        self._next_look = budget.min_samples

    def add(self, value_ns: float) -> None:
        self._samples.append(value_ns)

    def stop(self, spent_ns: int, share_ns: int) -> Stop | None:
        """Why sampling should end now, or None.

        `spent_ns` counts against the process's `share_ns` only once there are `min_samples`.
        """
        count = len(self._samples)
        if count < self._budget.min_samples:
            return None
        if self._budget.processes > 1:
            return Stop.SAMPLES  # more processes say more than more samples
        if count >= self._next_look:
            self._next_look = 2 * count
            if self._precise():
                return Stop.PRECISION
        if count >= self._budget.max_samples:
            return Stop.SAMPLES
        return Stop.BUDGET if spent_ns >= share_ns else None

    def _precise(self) -> bool:
        """Whether the 95% interval over what was added is as narrow as the budget asks."""
        # What one process cannot show of the others is a doubt, not a reason to sample it for ever.
        interval = stats.process_interval([self._samples], between=0.0)
        return stats.half_width(interval) <= self._budget.precision


def warm(window_ns: Sequence[float], least: int, most: int, *, jitter_ns: float = 0.0) -> bool:
    """Whether warm-up may end: the last two groups of windows agree, or there were `most`.

    They agree within 1%, or within what the clock itself may differ by.
    """
    if len(window_ns) < least:
        return False
    if len(window_ns) >= most or len(window_ns) < 2 * WARM_GROUP:
        return len(window_ns) >= most
    last = stats.median(window_ns[-WARM_GROUP:])
    before = stats.median(window_ns[-2 * WARM_GROUP : -WARM_GROUP])
    return abs(last - before) <= max(WARM_SHARE * before, jitter_ns)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The published samples of one process, and the judge's own view of the same call."""

    process: int
    samples_ns: tuple[float, ...]
    judge_ns: float | None = None  # the least that it may be
    judge_most_ns: float | None = None


def summarise(
    estimates: Sequence[Estimate],
    blocks: Sequence[Block],
    *,
    stop: Stop,
    floor_ns: float | None = None,
    classes: Sequence[str] = (),
    tick_ns: float = 1.0,
) -> Timing:
    """Make a Timing of every process's samples.  Raises ValueError when there are none."""
    samples = [list(e.samples_ns) for e in estimates if e.samples_ns]
    flat = [value for block in samples for value in block]
    interval = stats.process_interval(samples, tick=tick_ns)
    hosts = [float(ns) for block in blocks if block.calls == 1 for ns in block.host_ns]
    least = [e.judge_ns for e in estimates if e.judge_ns is not None]
    most = [e.judge_most_ns for e in estimates if e.judge_most_ns is not None]
    return Timing(
        median_ns=interval.median,
        low_ns=interval.low,
        high_ns=interval.high,
        mean_ns=stats.mean(flat),
        std_ns=stats.sample_std(flat),
        best_ns=min(flat),
        worst_ns=max(flat),
        samples=len(flat),
        processes=len(samples),
        stop=stop,
        host_median_ns=stats.median(hosts) if hosts else None,
        judge_ns=stats.median(least) if least else None,
        judge_most_ns=stats.median(most) if most else None,
        floor_ns=floor_ns,
        classes=tuple(dict.fromkeys(classes)),
        blocks=tuple(blocks),
        process_medians_ns=tuple(map(stats.median, samples)),
    )


def doubts_of(timing: Timing) -> tuple[Doubt, ...]:
    """What the numbers alone say against themselves."""
    found = []
    half = stats.half_width(stats.Interval(timing.median_ns, timing.low_ns, timing.high_ns))
    if timing.samples < FEW_SAMPLES:
        found.append(Doubt.FEW_SAMPLES)
    if half > stats.NOISY_SHARE:
        found.append(Doubt.NOISY)
    if timing.stop is Stop.BUDGET and half > BUDGET_SHARE:
        found.append(Doubt.BUDGET)
    return tuple(found)


def with_overrides(budget: Budget, processes: int | None, time_ns: int | None) -> Budget:
    """The user's --processes and --budget over a device's own."""
    return replace(
        budget,
        processes=budget.processes if processes is None else processes,
        fewest=budget.fewest if processes is None else processes,
        time_ns=budget.time_ns if time_ns is None else time_ns,
    )
