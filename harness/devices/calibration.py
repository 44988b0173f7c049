"""What the judge knows of its own clock, and what a worker's claims are worth against it.  Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness import stats
from harness.model import Block, Failed, Verdict
from harness.samples import OFFSET_SHARE
from harness.timing import Estimate
from harness.window import Audited, Window, waits

#: Windows of each known body.  Over 60 windows the overhead was within 0.6 us from p10 to p90
#: (H200), so the median of 24 is known to about 0.1 us.
WINDOWS = 24
#: Share of the time by which a lie may go unseen; K is chosen so that the judge sees this well.
RESOLUTION = 0.01
MAX_CALLS = 30
MERGED_WINDOWS = 4
#: A claim this far outside of what single windows allow is no measuring error: the overhead of
#: bodies that leave dirty lines was 4.5 us above that of a spin kernel (H200).
SINGLE_SLACK_NS = 5_000.0
#: How much more of a bracket than calibrated may go without an account.  On an H200 the overhead of
#: kernels in CUDA C++, Triton and CuTe was 1.3 us below to 1.0 us above that of loads of as many
#: bytes, over all processes of a shape; in one process of 26 it was 1.6 us above.
UNACCOUNTED_NS = 1_500.0
#: Calls in a row may overlap a little, and save the launch; no honest kernel saves more than half
#: and 2 us of a call by that.
MERGE_SHARE, MERGE_NS = 0.5, 2_000.0


@dataclass(frozen=True, slots=True)
class Overhead:
    """Bracket minus the worker's own events for one kind of body, in ns: p10, median, p90."""

    low_ns: float
    median_ns: float
    high_ns: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Taken in one worker while only our own code had run in it."""

    compute: Overhead  # a spin kernel
    memory: Overhead  # a cold streaming read of as many bytes as the L2 holds
    # Cold cached loads of few and of many bytes.  The less of the judge's state they leave in the
    # L2, the longer the switch back to it takes: 294 us after 33 MB, 296.5 after 132 MB (H200).
    cached: tuple[tuple[int, Overhead], tuple[int, Overhead]]
    empty_pair_ns: float  # two events with nothing between them; taken off every published time
    empty_kernel_ns: float  # published time of a kernel that returns at once; not taken off
    flush_ns: float  # how long the judge's own flush takes when nobody disturbs it

    @property
    def _all(self) -> tuple[Overhead, ...]:
        return (self.compute, self.memory, *(overhead for _, overhead in self.cached))

    @property
    def least_ns(self) -> float:
        return min(o.median_ns for o in self._all)

    @property
    def most_ns(self) -> float:
        return max(o.median_ns for o in self._all)

    def most_after_ns(self, call_bytes: int) -> float:
        """The most that a bracket costs around a call that touches so many bytes."""
        (few, less), (many, more) = self.cached
        share = math.log(max(few, min(many, call_bytes)) / few) / math.log(many / few)
        cached_ns = less.median_ns + share * (more.median_ns - less.median_ns)
        return max(self.compute.median_ns, self.memory.median_ns, cached_ns)

    @property
    def taken_off_ns(self) -> float:
        """What the judge's estimate of a window's calls leaves out of the bracket around them."""
        return self.memory.median_ns + self.empty_pair_ns

    @property
    def jitter_ns(self) -> float:
        """Half of the distance from p10 to p90 of one window's overhead."""
        return max(o.high_ns - o.low_ns for o in self._all) / 2


def overhead(brackets_ns: Sequence[float], claims_ns: Sequence[float]) -> Overhead:
    """Summarise honest windows.  Raises ValueError when there are none."""
    gaps = [b - c for b, c in zip(brackets_ns, claims_ns, strict=True)]
    return Overhead(stats.percentile(gaps, 0.1), stats.median(gaps), stats.percentile(gaps, 0.9))


def unsure_ns(calibration: Calibration, windows: int) -> float:
    """How far the judge's estimate of a whole window may be off: kind of body, and jitter."""
    return (
        calibration.most_ns
        - calibration.least_ns
        + 2 * calibration.jitter_ns / math.sqrt(max(1, windows))
    )


def calls_for(calibration: Calibration, call_ns: float, call_bytes: int, free_bytes: int) -> int:
    """How many calls a window must hold for the judge to see 1% of one call without the worker.

    1 when a single call is long enough, or when no two calls fit into memory.
    """
    wanted = math.ceil(unsure_ns(calibration, MERGED_WINDOWS) / (RESOLUTION * max(1.0, call_ns)))
    room = max(1, free_bytes // max(1, call_bytes))
    return max(1, min(wanted, MAX_CALLS, room))


def audit(
    calibration: Calibration,
    process: int,
    singles: Sequence[Window],
    merged: Sequence[Window],
    calls: int,
    *,
    call_bytes: int,
) -> Audited | Failed:
    """Hold one process's claims against the judge's clock.

    The bracket bounds a claim only through the known overhead, so a claim of a single call is known
    to some 1.5 us; windows of K calls divide that by K.  A claim that the judge's clock allows is
    published, since its jitter is smaller; a smaller one is replaced by the judge's own estimate,
    and one that no measuring error explains is `tampered` (tests/exploits/zoo/a1_patch_timer.py).

    Where a submission waits inside its calls, the host's time lies in the bracket, between our end
    event and the signal as well: 10 to 50 us (H200).  Then claims prove nothing either way, and the
    longest time that the bracket allows is published.
    """
    brackets = [float(w.elapsed_ns) for w in singles]
    claims = [float(w.claimed_ns) for w in singles]
    claim_ns = stats.median(claims)
    gap_ns = stats.median([b - c for b, c in zip(brackets, claims, strict=True)])
    low = calibration.least_ns - calibration.jitter_ns - SINGLE_SLACK_NS
    high = calibration.most_ns + calibration.jitter_ns + SINGLE_SLACK_NS + OFFSET_SHARE * claim_ns
    blocks = _blocks(calibration, process, singles, merged, calls)
    if (waits(singles) or waits(merged)) and gap_ns >= low:
        judged_ns = stats.median(brackets) - calibration.least_ns - calibration.empty_pair_ns
        return _judged(process, claims, judged_ns - claim_ns, judged_ns, blocks)
    if not low <= gap_ns <= high:
        return Failed(Verdict.TAMPERED, _disagree(claim_ns, claim_ns + gap_ns - high, calls=1))
    published_ns = max(1.0, claim_ns - calibration.empty_pair_ns)
    cost_ns = calibration.most_after_ns(call_bytes) + calibration.empty_pair_ns
    judged_ns = max(1.0, stats.median(brackets) - cost_ns)
    # Single calls alone bound a call to 1.5 us, and a worker that merges the calls of a longer
    # window, where that saves time, cannot take this bound down with it.
    least_ns = judged_ns - UNACCOUNTED_NS
    if merged:
        whole_ns = stats.median([float(w.elapsed_ns) for w in merged]) - calibration.empty_pair_ns
        least_ns = max(least_ns, (whole_ns - calibration.most_ns - calibration.jitter_ns) / calls)
        most_ns = (whole_ns - calibration.least_ns + calibration.jitter_ns) / calls
        judged_ns = (whole_ns - calibration.memory.median_ns) / calls
        if most_ns < MERGE_SHARE * published_ns - MERGE_NS:
            return Failed(
                Verdict.TAMPERED,
                f"{calls} calls in a row took {most_ns / 1e3:.2f} us each, a single one "
                f"{published_ns / 1e3:.2f} us: calls were merged",
            )
    allowance = RESOLUTION if merged else 0.0  # UNACCOUNTED_NS is in the bound of single calls
    if published_ns < least_ns * (1 - allowance):
        # The judge's clock decides: shift every sample up to its estimate.
        shift_ns = least_ns - published_ns
        if shift_ns > SINGLE_SLACK_NS:
            return Failed(Verdict.TAMPERED, _disagree(published_ns, least_ns, calls=calls))
        return _judged(process, claims, shift_ns - calibration.empty_pair_ns, judged_ns, blocks)
    samples = _shifted(claims, -calibration.empty_pair_ns)
    return Audited(Estimate(process, samples, judged_ns), blocks)


def _judged(
    process: int,
    claims: Sequence[float],
    shift_ns: float,
    judged_ns: float,
    blocks: tuple[Block, ...],
) -> Audited:
    """The claims moved to where the judge's clock has them."""
    return Audited(
        Estimate(process, _shifted(claims, shift_ns), judged_ns), blocks, ("judge clock",)
    )


def _shifted(claims: Sequence[float], shift_ns: float) -> tuple[float, ...]:
    return tuple(max(1.0, claim + shift_ns) for claim in claims)


def _disagree(claim_ns: float, judge_ns: float, *, calls: int) -> str:
    windows = "single calls" if calls == 1 else f"windows of {calls} calls"
    return (
        f"its process reported {claim_ns / 1e3:.2f} us a call, the judge's own clock saw at least "
        f"{judge_ns / 1e3:.2f} us in {windows}"
    )


def _blocks(
    calibration: Calibration,
    process: int,
    singles: Sequence[Window],
    merged: Sequence[Window],
    calls: int,
) -> tuple[Block, ...]:
    """Every raw sample: the judge's estimate of each window, and the claim beside it."""
    off_ns = calibration.taken_off_ns
    groups = [(1, singles), (calls, merged)]
    return tuple(
        Block(
            process=process,
            calls=count,
            window_ns=tuple(round(w.elapsed_ns - off_ns) for w in windows),
            claimed_ns=tuple(w.claimed_ns for w in windows),
            host_ns=tuple(w.host_ns for w in windows),
        )
        for count, windows in groups
        if windows
    )
