"""The samples that a published time was made of, back from a run's raw blocks.  Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from harness import stats
from harness.leaderboard import is_time
from harness.model import CaseKind, CaseResult, Clock, Passed, Run, Timing
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
    bounds = _bounds(timing)
    for process, (values, published_ns) in enumerate(zip(blocks, medians, strict=True)):
        offset = 0.0 if clock is Clock.HOST else published_ns - stats.median(values)
        shifted = tuple(max(1.0, v + offset) for v in values)
        made.append(Estimate(process, shifted, *(bounds[process] if bounds else ())))
    return tuple(made)


def _bounds(timing: Timing) -> tuple[tuple[float, float], ...]:
    """The least and the most that the judge's clock allows, by process; none where it saw nothing.

    What a bracket may cost is taken to differ from process to process by nothing.
    """
    if timing.judge_ns is None or timing.judge_most_ns is None:
        return ()
    width_ns = timing.judge_most_ns - timing.judge_ns
    return tuple((least_ns, least_ns + width_ns) for least_ns in leasts(timing))


def leasts(timing: Timing) -> tuple[float, ...]:
    """The least that the judge's clock allows, by process."""
    return tuple(max(1.0, stats.median(values)) for values in judged(timing))


def published(timing: Timing, clock: Clock) -> tuple[float, ...]:
    """All samples on the scale of the published time; empty where they cannot be found."""
    return tuple(v for one in estimates(timing, clock) or () for v in one.samples_ns)


def by_the_judge(run: Run) -> Run:
    """The run as the judge's own clock alone has it: of what its worker said nothing counts.

    On a CPU that is how it is published.  On a GPU what a bracket costs differs by 1 us with what
    a kernel leaves in the caches (H200), and nobody outside of the worker can see which it was: a
    time is the middle of what the bracket allows, and its interval holds all of it, and the noise.
    A case that no clock of the judge's saw has no time, and the run no score.
    """
    if run.clock is Clock.HOST:
        return run
    cases = tuple(map(_case_by_the_judge, run.cases))
    timed = [case.timing for case in cases if case.case.kind is CaseKind.BENCHMARK]
    medians = [timing.median_ns for timing in timed if timing is not None]
    known = run.score_ns is not None and medians and len(medians) == len(timed)
    score_ns = stats.geometric_mean(medians) if known else None
    return replace(run, clock=Clock.JUDGE, cases=cases, score_ns=score_ns)


def _case_by_the_judge(case: CaseResult) -> CaseResult:
    if not isinstance(case.outcome, Passed) or case.outcome.timing is None:
        return case
    return replace(case, outcome=replace(case.outcome, timing=_by_the_judge(case.outcome.timing)))


def _by_the_judge(timing: Timing) -> Timing | None:
    blocks = [[max(1.0, v) for v in values] for values in judged(timing)]
    if timing.judge_ns is None or timing.judge_most_ns is None or not blocks:
        return None
    noise = stats.process_interval(blocks)
    low_ns, high_ns = noise.low, noise.high + max(0.0, timing.judge_most_ns - timing.judge_ns)
    # What a bracket may cost is the same for all processes: their medians do not show it.
    return replace(
        timing,
        median_ns=math.sqrt(low_ns * high_ns),
        low_ns=low_ns,
        high_ns=high_ns,
        process_medians_ns=(),
    )


def centre_of(values: Sequence[float]) -> float:
    """The published statistic of processes' medians."""
    return math.exp(stats.centre_of([math.log(v) for v in values]))
