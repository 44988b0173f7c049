"""What the judge knows of its own clock, and what a worker's claims are worth against it.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness import stats
from harness.model import Block, Failed, Verdict
from harness.samples import OFFSET_SHARE
from harness.timing import Estimate
from harness.window import Audited, Window, waits

#: Windows of each known body.  The overhead of one is within 1.4 us from p10 to p90 (H200), so the
#: median of 24 is known to about 0.1 us.
WINDOWS = 24
#: A claim this far outside of what the brackets allow is no measuring error.
SLACK_NS = 5_000.0
#: How much more of a bracket than calibrated may go without an account: so much, and this share of
#: the time.  On an H200 the overhead of kernels in Triton and CuTe was 0.5 us below to 0.3 us above
#: that of ordinary loads, that of bulk copies 0.4 to 1.7 us below; in one process of 30 it was
#: 0.5 us above, around calls of 0.5 ms in most of nine a little more than 0.3 us.
UNACCOUNTED_NS, UNACCOUNTED_SHARE = 300.0, 0.002


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
    # Cold ordinary loads: what they leave in the L1 makes the switch from the worker 1 us longer.
    cached: Overhead
    waiting: Overhead  # a spin kernel in the bracket that calls get which wait for the device
    empty_pair_ns: float  # two events with nothing between them; taken off every published time
    empty_kernel_ns: float  # published time of a kernel that returns at once; not taken off
    flush_ns: float  # how long the judge's own flush takes when nobody disturbs it

    @property
    def _all(self) -> tuple[Overhead, ...]:
        return (self.compute, self.memory, self.cached)

    @property
    def least_ns(self) -> float:
        return min(o.median_ns for o in self._all)

    @property
    def most_ns(self) -> float:
        return max(o.median_ns for o in self._all)

    def shortest_ns(self, window: Window) -> float:
        """The least time of a window's call that its bracket allows."""
        cost_ns = self.waiting.median_ns if window.waited else self.most_ns
        return window.elapsed_ns - cost_ns - self.empty_pair_ns

    def longest_ns(self, window: Window) -> float:
        """The most, where no host's time is in the bracket."""
        cost_ns = self.waiting.median_ns if window.waited else self.least_ns
        return window.elapsed_ns - cost_ns - self.empty_pair_ns

    @property
    def jitter_ns(self) -> float:
        """Half of the distance from p10 to p90 of one window's overhead."""
        return max(o.high_ns - o.low_ns for o in self._all) / 2


def overhead(brackets_ns: Sequence[float], claims_ns: Sequence[float]) -> Overhead:
    """Summarise honest windows.  Raises ValueError when there are none."""
    gaps = [b - c for b, c in zip(brackets_ns, claims_ns, strict=True)]
    return Overhead(stats.percentile(gaps, 0.1), stats.median(gaps), stats.percentile(gaps, 0.9))


def audit(calibration: Calibration, process: int, windows: Sequence[Window]) -> Audited | Failed:
    """Hold one process's claims against the judge's clock.

    A bracket bounds a claim through its known overhead, which depends a little on the kind of work:
    a claim that the largest one allows is published, since its jitter is smaller; a smaller one is
    replaced by the judge's own estimate, and one that no measuring error explains is `tampered`
    (tests/exploits/zoo/a1_patch_timer.py).

    Where a submission waits inside its calls, the host's time lies in the bracket, between the end
    event and the signal as well: 10 to 50 us (H200).  Then claims prove nothing either way, and the
    longest time that the bracket allows is published.
    """
    c = calibration
    claims = [float(w.claimed_ns - c.empty_pair_ns) for w in windows]
    claim_ns = stats.median(claims)
    most_ns = stats.median([c.longest_ns(w) for w in windows])
    least_ns = stats.median([c.shortest_ns(w) for w in windows])
    # By how much the claims are above the most that the brackets allow, and below the least.
    over_ns = -stats.median([c.longest_ns(w) - n for w, n in zip(windows, claims, strict=True)])
    under_ns = stats.median([c.shortest_ns(w) - n for w, n in zip(windows, claims, strict=True)])
    free_ns = c.jitter_ns + SLACK_NS
    bounds_ns = max(1.0, least_ns), max(1.0, most_ns)
    estimate = Estimate(process, _shifted(claims, 0.0), *bounds_ns)
    block = _block(c, process, windows)
    if waits(windows) and over_ns <= free_ns:
        judged = replace(estimate, samples_ns=_shifted(claims, most_ns - claim_ns))
        return Audited(judged, (block,), ("judge clock",))
    if over_ns > free_ns or under_ns > free_ns + OFFSET_SHARE * claim_ns:
        return Failed(
            Verdict.TAMPERED,
            f"its process reported {claim_ns / 1e3:.2f} us a call, by the judge's own clock it was "
            f"between {least_ns / 1e3:.2f} and {most_ns / 1e3:.2f} us",
        )
    open_ns = UNACCOUNTED_NS + UNACCOUNTED_SHARE * max(0.0, claim_ns)
    short_ns = least_ns - open_ns - max(1.0, claim_ns)
    if short_ns <= 0:
        return Audited(estimate, (block,))
    # The judge's clock decides: every sample is moved up to what it allows.  Of a shift that the
    # calibration's own errors can explain nobody needs to be told.
    judged = replace(estimate, samples_ns=_shifted(claims, short_ns))
    return Audited(judged, (block,), ("judge clock",) if short_ns > open_ns else ())


def _shifted(claims: Sequence[float], shift_ns: float) -> tuple[float, ...]:
    return tuple(max(1.0, claim + shift_ns) for claim in claims)


def _block(calibration: Calibration, process: int, windows: Sequence[Window]) -> Block:
    """Every raw sample: the judge's estimate of each window, and the claim beside it."""
    return Block(
        process=process,
        calls=1,
        window_ns=tuple(round(calibration.shortest_ns(w)) for w in windows),
        claimed_ns=tuple(w.claimed_ns for w in windows),
        host_ns=tuple(w.host_ns for w in windows),
    )
