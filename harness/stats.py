"""Medians, intervals, comparisons: numbers in, numbers out.  No torch, no clock, no randomness.

Times are multiplied, not added, by what disturbs them, so every interval is made on the log scale.
scipy is imported where a p-value is needed, so that reading results does not load it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from typing import NamedTuple

#: Standard deviation of the log of a median between processes, assumed when one process cannot
#: show it.  Measured on a 2-core virtual machine: a gather, 31 samples in each of 8 processes, gave
#: 0.015 (one process, which took twice the time of the others, left out); torch_dequant, six runs
#: of one process one after the other, 0.05, 0.11 and 0.17 on its three shapes.
SINGLE_PROCESS_SD = 0.05

#: No difference below this is called one: half a percent (also the precision that ends sampling).
MIN_EFFECT = 0.005

#: What a run adds to its own interval when it is ranked against another: no run can see in itself
#: the state that it found the machine in, and the leader of equals is the luckiest of them.  The
#: least that keeps strict orders between equals under 5% of pairs on simulated boards of 20, where
#: none gives 24% (benchmarks/simulate_ranking.py).
UNSEEN = 0.006

#: An interval wider than this share of the time cannot carry a rank near others.
NOISY_SHARE = 0.02

_Z = 1.959963984540054  # 97.5% quantile of the normal distribution


class Interval(NamedTuple):
    """A statistic and its 95% interval, in the unit of the samples."""

    median: float
    low: float
    high: float


class Change(StrEnum):
    """What a comparison found about its first side."""

    FASTER = "faster"
    SLOWER = "slower"
    INDISTINGUISHABLE = "indistinguishable"


class Comparison(NamedTuple):
    """Time of a / time of b with its 95% interval; `p` is two-sided, for "no difference"."""

    ratio: float
    low: float
    high: float
    outcome: Change
    p: float


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two middle ones.  Raises ValueError when empty."""
    if not values:
        raise ValueError("no values")
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def centre_of(values: Sequence[float]) -> float:
    """The mean of the middle half (the interquartile mean): of three values the median, of nine the
    mean of the middle five.

    Of normal values it varies an eighth less than the median, and two of eight may be anything.
    Raises ValueError when empty.
    """
    cut = max(1, len(values) // 4) if len(values) > 2 else 0
    return mean(sorted(values)[cut : len(values) - cut])


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean, summed exactly.  Raises ValueError when empty."""
    if not values:
        raise ValueError("no values")
    return math.fsum(values) / len(values)


def sample_std(values: Sequence[float]) -> float | None:
    """The standard deviation with n-1 below the line; None from fewer than two values."""
    if len(values) < 2:
        return None
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0..1) of the values lie, interpolated as numpy does."""
    if not values or not 0 <= share <= 1:
        raise ValueError("no values, or a share outside 0..1")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean logarithm, so that many small times do not underflow.

    Raises ValueError when empty or when a value is not a positive finite number.
    """
    return math.exp(mean(_logs(values)))


def tick_floor(resolution: float) -> float:
    """Standard error that a clock of this step leaves, whatever the samples say: step / sqrt(12).

    Three equal readings of a coarse clock are no proof of a precise time (TIMING 2.8).
    """
    return resolution / math.sqrt(12)


def process_interval(
    blocks: Sequence[Sequence[float]], *, tick: float = 0.0, between: float = SINGLE_PROCESS_SD
) -> Interval:
    """The published statistic (`centre_of` the processes' medians) and its 95% interval.

    `blocks` holds the samples of each process.  A process's median is taken of nanoseconds and not
    of logarithms, as the judge's audit takes it: of an even number of samples the two differ
    (tests/test_audit.py).  Processes, not samples, are the independent repetitions, so the standard
    error is that of the bootstrap of their median (its exact distribution: no draws, no seed),
    corrected for their small number by sqrt(P / (P-1)) and by the t-quantile of P-1 degrees of
    freedom; it is never less than the samples of one process or the clock's step allow.  Coverage
    in simulation: 97 to 99% for 2 to 9 processes with normal, skewed or contaminated process
    effects, 89 to 96% when processes fall into two modes.  One process shows nothing of the
    differences between processes: `between` (log scale) stands in.

    Raises ValueError when there is no sample or one is not a positive finite number.
    """
    filled = [block for block in blocks if block]
    if not filled:
        raise ValueError("no samples")
    medians = sorted(_log_median(block) for block in filled)
    centre = centre_of(medians)
    errors = [_median_error(sorted(_logs(block))) for block in filled]
    within = mean(errors) / math.sqrt(len(filled))
    half = max(_Z * within, _Z * tick_floor(tick) / math.exp(centre))
    if len(filled) > 1:
        count = len(filled)
        spread = _bootstrap_error(medians) * math.sqrt(count / (count - 1))
        half = max(half, _t_quantile(count - 1) * spread)
    else:
        half = math.hypot(half, _Z * between)
    return Interval(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


def score_interval(
    intervals: Sequence[Interval], process_medians: Sequence[Sequence[float]] = ()
) -> Interval:
    """The geometric mean over shapes and its 95% interval.

    `intervals` has one per shape, `process_medians` each shape's medians by process.  With them a
    process's own score is the repetition, so an error that the shapes share is neither missed nor
    counted three times.  Without them (or from one process) the shapes' errors are taken to point
    the same way: half-widths average (log scale) instead of shrinking with the number of shapes.
    """
    centre = mean(_logs([i.median for i in intervals]))
    halves = [half_width(i) for i in intervals]
    count = min(map(len, process_medians), default=0)
    if (
        count < 2
        or {len(m) for m in process_medians} != {count}
        or len(halves) != len(process_medians)
    ):
        half = mean(halves)
    else:
        scores = sorted(mean(_logs(one)) for one in zip(*process_medians, strict=True))
        spread = _bootstrap_error(scores) * math.sqrt(count / (count - 1))
        quantile = _t_quantile(count - 1)
        # Processes that agree by chance, or by a coarse clock, know no more than their samples.
        half = max(quantile * spread, _Z / quantile * math.hypot(*halves) / len(halves))
    return Interval(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


def half_width(interval: Interval) -> float:
    """Half of the interval's width on the log scale: 0.01 is about 1% either way."""
    low, high = _logs([interval.low, interval.high])
    return abs(high - low) / 2


def separated(a: Interval, b: Interval) -> bool:
    """Whether a is faster than b by more than the noise of both, `UNSEEN` included."""
    gap = math.log(b.median) - math.log(a.median)
    return beyond_noise(gap, half_width(a), half_width(b))


def beyond_noise(gap: float, a: float, b: float) -> bool:
    """`separated` for a log gap and two half-widths that are already known."""
    return gap > math.hypot(a, b, UNSEEN, UNSEEN)


def compare_ratios(log_ratios: Sequence[float], *, min_effect: float = MIN_EFFECT) -> Comparison:
    """Compare two submissions by the log ratios of neighbouring runs, or their means over shapes.

    In A B B A order a steady drift cancels between them.  The interval is Student's over the
    ratios.  Raises ValueError for fewer than two, or one that is not finite.
    """
    centre, spread = mean(log_ratios), sample_std(log_ratios)
    if spread is None or not math.isfinite(centre):
        raise ValueError("a comparison needs at least two pairs of finite times")
    error = spread / math.sqrt(len(log_ratios))
    half = _t_quantile(len(log_ratios) - 1) * error
    outcome = Change.INDISTINGUISHABLE
    if abs(centre) > half and abs(centre) >= math.log1p(min_effect):
        outcome = Change.FASTER if centre < 0 else Change.SLOWER
    p = _p_value(centre, error, len(log_ratios) - 1)
    return Comparison(
        math.exp(centre), math.exp(centre - half), math.exp(centre + half), outcome, p
    )


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's adjusted p-values, in the order given: compare each with 0.05 as if it stood alone."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, floor = [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        floor = max(floor, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = floor
    return tuple(adjusted)


def _logs(values: Sequence[float]) -> list[float]:
    if not values or not all(math.isfinite(v) and v > 0 for v in values):
        raise ValueError("expected positive finite numbers")
    return [math.log(v) for v in values]


def _log_median(values: Sequence[float]) -> float:
    """The logarithm of the median.  Raises ValueError as _logs does."""
    _logs(values)
    return math.log(median(values))


def _median_error(ordered: Sequence[float]) -> float:
    """Standard error of the median of one process's samples (McKean and Schrader 1984).

    From the two order statistics that enclose the median 95% of the time.  Below six samples none
    do, so Student's interval stands in; one sample is given a factor of two either way.
    """
    count = len(ordered)
    if count == 1:
        return math.log(2) / _Z
    if count < 6:
        spread = sample_std(ordered) or 0.0
        return _t_quantile(count - 1) / _Z * 1.2533 * spread / math.sqrt(count)
    below = max(0, math.floor((count + 1) / 2 - _Z * math.sqrt(count) / 2) - 1)
    return (ordered[count - 1 - below] - ordered[below]) / (2 * _Z)


def _bootstrap_error(ordered: Sequence[float]) -> float:
    """Standard deviation of the median of `len(ordered)` draws with replacement: exact."""
    count = len(ordered)
    r = (count + 1) // 2  # the lower of the two middle places; the only one when count is odd
    moments = [0.0, 0.0]

    def add(weight: float, value: float) -> None:
        moments[0] += weight * value
        moments[1] += weight * value * value

    shift = ordered[0]  # keeps the second moment free of cancellation
    for i in range(1, count + 1):
        place = _at_least(r, count, i / count) - _at_least(r, count, (i - 1) / count)
        if count % 2 == 0:
            for j in range(i + 1, count + 1):
                lower = (i / count) ** r - ((i - 1) / count) ** r
                upper = ((count - j + 1) / count) ** r - ((count - j) / count) ** r
                weight = math.comb(count, r) * lower * upper
                place -= weight
                add(weight, (ordered[i - 1] + ordered[j - 1]) / 2 - shift)
        add(place, ordered[i - 1] - shift)
    return math.sqrt(max(0.0, moments[1] - moments[0] ** 2))


def _at_least(successes: int, trials: int, chance: float) -> float:
    return math.fsum(
        math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
        for k in range(successes, trials + 1)
    )


@cache
def _t_quantile(freedom: int) -> float:
    """Student's 97.5% quantile.  Without scipy, whose import takes longer than `harness show`."""
    low, high = 1.9, 13.0  # of infinitely many degrees of freedom, and of one
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if _t_within(middle, freedom) < 0.95:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _t_within(t: float, freedom: int) -> float:
    """P(|T| < t) for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    square = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    terms = [] if freedom == 1 else [term]
    for i in range(2 + odd, freedom - 1, 2):
        term *= square * (i - 1) / i
        terms.append(term)
    total = math.sin(angle) * math.fsum(terms)
    return (angle + total) * 2 / math.pi if odd else total


def _p_value(centre: float, error: float, freedom: int) -> float:
    from scipy.special import stdtr

    if error == 0:
        return 1.0 if centre == 0 else 0.0
    return float(2 * stdtr(freedom, -abs(centre) / error))
