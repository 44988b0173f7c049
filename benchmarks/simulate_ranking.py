"""How often the leaderboard's rule is wrong, on boards whose truth is known.

    python -m benchmarks.simulate_ranking [BOARDS]

Twenty equal submissions are measured as the harness measures (several processes, samples with a
right-skewed noise and rare spikes, three shapes), once as they are and once beside one that is 2%
faster.  The incumbent's rule ranks the same machine's times: a run stops when the standard error is
below 0.1% of the mean (3 to 100 samples, one process), a user's score is the minimum of five runs.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness import leaderboard, stats
from harness.model import (
    Clock,
    Isolation,
    Mode,
    Shape,
    ShapeStanding,
    Summary,
    Verdict,
)

ENTRANTS = 20
GAIN = 0.02
SHAPES = {Shape((("n", 1),)): 22_000.0, Shape((("n", 2),)): 50_000.0, Shape((("n", 3),)): 11_000.0}
PROCESSES, SAMPLES = 5, 30
USERS_RUNS = 5

# Log scale.  A run meets the machine in one state (clock, temperature), a process in another
# (layout); a sample has jitter with a tail to the right, and one in thirty is hit by something.
RUN_SD, PROCESS_SD, JITTER, SPIKE_CHANCE, SPIKE = 0.002, 0.005, 0.01, 1 / 30, 0.1


@dataclass(frozen=True, slots=True)
class Outcome:
    """Shares of pairs: equals in a strict order, and the faster one found to be so."""

    wrong_order: float
    found: float
    incumbent_wrong_order: float
    incumbent_found: float


def simulate(*, boards: int, seed: int) -> Outcome:
    """Rank `boards` simulated boards by both rules."""
    draw = random.Random(seed)
    ours, found, theirs, their_found = [], [], [], []
    for _ in range(boards):
        rows = [_row(draw, f"equal{i}", 1.0) for i in range(ENTRANTS)]
        rank = _ranks(rows)
        ours.append(_unequal([rank[row.id] for row in rows]))
        rank = _ranks([*rows, _row(draw, "faster", 1 - GAIN)])
        found.append(stats.mean([rank["faster"] < rank[row.id] for row in rows]))
        scores = [_incumbent(draw, 1.0) for _ in range(ENTRANTS)]
        theirs.append(_unequal(scores))
        best = _incumbent(draw, 1 - GAIN)
        their_found.append(stats.mean([best < score for score in scores]))
    return Outcome(*(stats.mean(shares) for shares in (ours, found, theirs, their_found)))


def _unequal(values: Sequence[float]) -> float:
    pairs = list(itertools.combinations(values, 2))
    return sum(a != b for a, b in pairs) / len(pairs)


def _ranks(rows: Sequence[Summary]) -> dict[str, int]:
    return dict(leaderboard.ranks(leaderboard.boards(rows)))


def _process(draw: random.Random, time_ns: float, state: float, samples: int) -> list[float]:
    """Samples of one process, in nanoseconds."""
    centre = time_ns * math.exp(state + draw.gauss(0, PROCESS_SD))
    return [
        centre * (1 + draw.gammavariate(1, JITTER) + SPIKE * (draw.random() < SPIKE_CHANCE))
        for _ in range(samples)
    ]


def _row(draw: random.Random, name: str, factor: float) -> Summary:
    state = draw.gauss(0, RUN_SD)
    intervals, medians = [], []
    for time_ns in SHAPES.values():
        blocks = [_process(draw, factor * time_ns, state, SAMPLES) for _ in range(PROCESSES)]
        intervals.append(stats.process_interval(blocks))
        medians.append([stats.median(block) for block in blocks])
    score = stats.score_interval(intervals, medians)
    timed = [ShapeStanding(s, *i, None) for s, i in zip(SHAPES, intervals, strict=True)]
    return replace(
        _BLANK,
        id=name,
        submission=name,
        score_ns=score.median,
        low_ns=score.low,
        high_ns=score.high,
        shapes=tuple(timed),
    )


def _incumbent(draw: random.Random, factor: float) -> float:
    """The minimum of a user's runs, each the geometric mean of means."""
    runs = []
    for _ in range(USERS_RUNS):
        state = draw.gauss(0, RUN_SD)
        means = [_stopped_mean(draw, factor * t, state) for t in SHAPES.values()]
        runs.append(stats.geometric_mean(means))
    return min(runs)


def _stopped_mean(draw: random.Random, time_ns: float, state: float) -> float:
    mean = squares = 0.0
    for count, sample in enumerate(_process(draw, time_ns, state, 100), 1):
        step = sample - mean
        mean += step / count
        squares += step * (sample - mean)  # Welford's sum
        if count >= 3 and math.sqrt(squares / (count - 1) / count) < 0.001 * mean:
            break
    return mean


_BLANK = Summary(
    id="",
    task="simulated",
    task_digest="",
    mode=Mode.RANKED,
    verdict=Verdict.PASSED,
    message="",
    created_ns=0,
    submission="",
    author="",
    sha256="",
    device_kind="cuda",
    device="simulated",
    isolation=Isolation.SANDBOX,
    clock=Clock.JUDGE,
    doubts=(),
    custom_shapes=False,
    tests=1,
    failed=0,
    score_ns=None,
    low_ns=None,
    high_ns=None,
    shapes=(),
)


def main() -> None:
    """Print the four shares for as many boards as asked (200)."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    got = simulate(boards=count, seed=2026)
    sys.stdout.write(
        f"{count} boards of {ENTRANTS} equal submissions, one run each of "
        f"{PROCESSES} processes x {SAMPLES} samples\n"
        f"pairs of equals in a strict order: {got.wrong_order:.1%} here, "
        f"{got.incumbent_wrong_order:.1%} by the minimum of {USERS_RUNS} runs\n"
        f"a {GAIN:.0%} faster one found faster: {got.found:.1%} here, "
        f"{got.incumbent_found:.1%} by the minimum of {USERS_RUNS} runs\n"
    )


if __name__ == "__main__":
    main()
