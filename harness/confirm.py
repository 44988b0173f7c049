"""Measure the fastest entries again, side by side, and let the fresh result replace the old one.

Whoever leads was selected for being fast, luck included: a fresh measurement has no such luck.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from harness import samples, stats, timing
from harness.errors import HarnessError
from harness.model import (
    CaseKind,
    CaseResult,
    Doubt,
    Mode,
    Passed,
    Run,
    Stop,
    Timing,
    Verdict,
)

#: Forwards, backwards, forwards: a steady drift of the machine meets every entry alike, and three
#: processes at least are what an interval needs (Student's factor for two is 12.7, for three 4.3).
ROUNDS = 3
#: Worker processes of each entry in each round on a GPU; on a CPU it is one.
PROCESSES = 2

#: What the times alone say of themselves, and say anew after a merge.
_OF_TIMES = frozenset({Doubt.NOISY, Doubt.FEW_SAMPLES, Doubt.BUDGET})


def measure(judge: Callable[[int, Mode], Run], count: int) -> Iterator[tuple[int, Run]]:
    """Have `judge(entry, mode)` run `count` entries in interleaved rounds.

    Yields each entry with its Run as soon as that is whole.  The first round checks and times, the
    others time.  An entry that fails is not run again: its Run is the one that failed.
    """
    found: dict[int, list[Run]] = {entry: [] for entry in range(count)}
    for number in range(ROUNDS):
        order = range(count) if number % 2 == 0 else reversed(range(count))
        for entry in order:
            done = found[entry]
            if done and done[-1].verdict is not Verdict.PASSED:
                continue
            done.append(judge(entry, Mode.RANKED if number == 0 else Mode.BENCHMARK))
            if len(done) == ROUNDS or done[-1].verdict is not Verdict.PASSED:
                yield entry, merged(done)


def merged(runs: Sequence[Run]) -> Run:
    """One ranked Run out of a ranked one and the timings that followed it.

    The last one stands as it is when it did not pass.  Raises HarnessError when a run's samples do
    not give its times.
    """
    if runs[-1].verdict is not Verdict.PASSED:
        return replace(runs[-1], mode=Mode.RANKED)
    first, *later = runs
    cases = tuple(_case(case, runs) for case in first.cases)
    timings = [case.timing for case in cases if case.timing is not None]
    kept = dict.fromkeys(doubt for run in runs for doubt in run.doubts if doubt not in _OF_TIMES)
    kept |= dict.fromkeys(doubt for one in timings for doubt in timing.doubts_of(one))
    seeds = ", ".join(run.secret_seed for run in later)
    return replace(
        first,
        id=secrets.token_hex(6),
        created_ns=runs[-1].created_ns,
        duration_ns=sum(run.duration_ns for run in runs),
        doubts=tuple(kept),
        score_ns=stats.geometric_mean([one.median_ns for one in timings]),
        cases=cases,
        notes=(*first.notes, f"measured in {len(runs)} interleaved rounds; later seeds: {seeds}"),
    )


def _case(case: CaseResult, runs: Sequence[Run]) -> CaseResult:
    if case.case.kind is not CaseKind.BENCHMARK or not isinstance(case.outcome, Passed):
        return case
    rounds = [
        (other.timing, run)
        for run in runs
        for other in run.cases
        if other.case.kind is CaseKind.BENCHMARK and other.case.shape == case.case.shape
        if other.timing is not None
    ]
    return replace(case, outcome=replace(case.outcome, timing=_together(rounds)))


def _together(rounds: Sequence[tuple[Timing, Run]]) -> Timing:
    found: list[timing.Estimate] = []
    blocks = []
    for one, run in rounds:
        estimates = samples.estimates(one, run.clock)
        if estimates is None:
            raise HarnessError(f"run {run.id}: its samples do not give its times")
        begin = len(found)
        found += [replace(e, process=begin + e.process) for e in estimates]
        numbers = {p: begin + i for i, p in enumerate(sorted({b.process for b in one.blocks}))}
        blocks += [replace(block, process=numbers[block.process]) for block in one.blocks]
    stops = [one.stop for one, _ in rounds]
    return timing.summarise(
        found,
        blocks,
        stop=Stop.BUDGET if Stop.BUDGET in stops else stops[0],
        floor_ns=rounds[0][0].floor_ns,
        classes=[name for one, _ in rounds for name in one.classes],
    )
