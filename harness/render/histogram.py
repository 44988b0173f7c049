"""A submission's samples of one shape as a small SVG, drawn without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from harness.leaderboard import is_time
from harness.model import Timing
from harness.render import text

#: Points of a strip; more only blacken it.
STRIP = 120
#: Bins of a small histogram.
BINS = 36


class Histogram(NamedTuple):
    """An SVG path in a box of 100 by 30, and where the median and its interval lie in percent."""

    path: str
    middle: float
    low: float
    width: float
    first: str
    last: str


def histogram(timing: Timing, samples: Sequence[float]) -> Histogram | None:
    """The middle 98% of the samples with the published median and interval; None below three."""
    ordered = sorted(v for v in samples if is_time(v))
    if len(ordered) < 3 or not is_time(timing.median_ns):
        return None
    cut = len(ordered) // 100
    inner = ordered[cut : len(ordered) - cut]
    low = min(inner[0], timing.low_ns if is_time(timing.low_ns) else inner[0])
    high = max(inner[-1], timing.high_ns if is_time(timing.high_ns) else inner[-1])
    span = high - low or 1.0
    counts = [0] * BINS
    for v in inner:
        counts[min(BINS - 1, int((v - low) / span * BINS))] += 1
    most, step = max(counts), 100 / BINS
    parts = [
        f"M{i * step:.2f} 30v{-28 * c / most:.2f}h{step - 0.5:.2f}v{28 * c / most:.2f}z"
        for i, c in enumerate(counts)
        if c
    ]

    def at(v: float) -> float:
        return round(min(100.0, max(0.0, (v - low) / span * 100)), 2)

    left, right = at(timing.low_ns), at(timing.high_ns)
    return Histogram(
        "".join(parts),
        at(timing.median_ns),
        left,
        round(max(0.6, right - left), 2),
        text.duration(low),
        text.duration(high),
    )


def thin(samples: Sequence[float], count: int = STRIP) -> list[float]:
    """At most `count` samples, evenly taken in the order in which they were measured."""
    kept = [v for v in samples if is_time(v)]
    step = max(1.0, len(kept) / count)
    return [kept[int(i * step)] for i in range(min(count, len(kept)))]
