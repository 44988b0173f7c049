"""How often `harness gate` fails a submission that is exactly as much slower as is allowed.

    python -m benchmarks.gate_alarms [--gates 200000]

Simulates whole comparisons, three looks at four more pairs each, with noise that is normal on the
log scale; its size does not matter.  Beside the gate's own rule stands one that fails, at the last
look, whatever the 95% interval of one shape at one look excludes.  Prints a Markdown table.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.special import stdtr

from harness.slowdown import ALPHA, LOOKS, MOST_PAIRS

SHAPES = (1, 3, 9)


def alarms(shapes: int, gates: int, seed: int = 1) -> tuple[float, float]:
    """Share of gates that fail: by the gate's rule, and by the looser one."""
    ratios = np.random.default_rng(seed).normal(size=(gates, shapes, MOST_PAIRS))
    p = np.zeros((gates, shapes))
    still = np.ones((gates, shapes), bool)  # ambiguous, in a gate that has not ended
    failed = np.zeros(gates, bool)
    for pairs in range(MOST_PAIRS // LOOKS, MOST_PAIRS + 1, MOST_PAIRS // LOOKS):
        taken = ratios[:, :, :pairs]
        error = taken.std(2, ddof=1) / np.sqrt(pairs)
        p = np.where(still, stdtr(pairs - 1, -taken.mean(2) / error), p)
        failed |= (still & (p < ALPHA / (LOOKS * shapes))).any(1)
        still &= ~failed[:, None] & ((1 - p) >= ALPHA / LOOKS)
    return float(failed.mean()), float((failed | (still & (p < ALPHA / 2)).any(1)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gates", type=int, default=200_000)
    gates = parser.parse_args().gates
    print("| shapes | false alarms | by the looser rule |\n|--:|--:|--:|")
    for shapes in SHAPES:
        ours, looser = alarms(shapes, gates)
        print(f"| {shapes} | {ours:.1%} | {looser:.1%} |")


if __name__ == "__main__":
    main()
