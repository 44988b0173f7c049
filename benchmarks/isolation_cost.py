"""Does the sandbox change what a GPU is measured to take?

    python -m benchmarks.isolation_cost submissions/cuda_inline.py [--groups 2] [--device cuda:0]

Times one submission at `sandbox` and as a plain process (`separated`) in turn, A B B A, each in
fresh processes, as the gate times a submission beside its baseline.  Prints a Markdown table:
the time in the sandbox over the time outside of it, with its 95% interval.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from benchmarks.gate_power import run_once
from harness import slowdown, stats
from harness.model import IsolationPolicy, Shape
from harness.slowdown import GROUP
from harness.sources import read_submission
from harness.task import load

ROOT = Path(__file__).resolve().parent.parent
SIDES = {"base": IsolationPolicy.OFF, "head": IsolationPolicy.REQUIRE}


def main() -> int:
    """Measure and print; 1 when a ratio is further than half a percent from one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--groups", type=int, default=2, help="of eight processes (2)")
    parser.add_argument("--device", default="cuda:0")
    options = parser.parse_args()
    task, submission = load(ROOT), read_submission(options.file, None)
    ratios: dict[Shape, list[float]] = {shape: [] for shape in task.ranked}
    for _ in range(options.groups):
        times: dict[str, dict[Shape, list[float]]] = {side: {} for side in SIDES}
        for side, processes in GROUP:
            run = run_once(task, submission, options.device, processes, isolation=SIDES[side])
            for shape, values in slowdown.times_of(run).items():
                times[side].setdefault(shape, []).extend(values)
        for shape, logs in ratios.items():
            pairs = zip(times["head"][shape], times["base"][shape], strict=True)
            logs += [math.log(inside / outside) for inside, outside in pairs]
    lines, held = report(ratios)
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if held else 1


def report(ratios: dict[Shape, list[float]]) -> tuple[list[str], bool]:
    """The table and whether every ratio may be within half a percent of one."""
    lines = ["| shape | sandbox / separated (95%) | pairs |", "|---|---|--:|"]
    held = True
    pooled = [stats.mean(pair) for pair in zip(*ratios.values(), strict=True)]
    for label, logs in (*((s.label, v) for s, v in ratios.items()), ("geometric mean", pooled)):
        found = stats.compare_ratios(logs)
        # Beyond half a percent for sure: the interval is often wider than that.
        held = held and found.low - 1 <= stats.MIN_EFFECT and 1 - found.high <= stats.MIN_EFFECT
        lines.append(
            f"| {label} | {found.ratio:.4f} ({found.low:.4f} to {found.high:.4f}) | {len(logs)} |"
        )
    return lines, held


if __name__ == "__main__":
    sys.exit(main())
