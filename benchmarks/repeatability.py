"""Does the same submission get the same score again, and do the intervals cover?

    python -m benchmarks.repeatability submissions/cuda_inline.py --runs 10

Every run is a `harness run` of its own, `--mode benchmark`, one after the other.  The pooled median
of a shape is that of all runs; an interval that is stated as 95% should cover it that often.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from harness import stats


@dataclass(frozen=True, slots=True)
class Shot:
    """One run: its score, its wall time, and median, low and high of each shape, in ns."""

    score_ns: float
    duration_s: float
    shapes: dict[str, tuple[float, float, float]]


def shoot(file: str, arguments: list[str]) -> Shot:
    """Run once.  Raises SystemExit with the harness's own words when it did not pass."""
    command = [sys.executable, "-m", "harness", "run", file, "--mode", "benchmark"]
    done = subprocess.run(
        [*command, "--json", "--quiet", "--no-store", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(done.stderr or done.stdout)
    return read(json.loads(done.stdout)["runs"][0])


def read(run: dict[str, Any]) -> Shot:
    """The numbers of one run document.  Raises SystemExit when it has no score."""
    shapes = {}
    for case in run["cases"]:
        timing = case["timing"]
        if timing is not None:
            label = "x".join(str(size) for size in case["shape"].values())
            shapes[label] = (timing["median_ns"], timing["low_ns"], timing["high_ns"])
    if run["score_ns"] is None:
        raise SystemExit(f"run {run['id']} has no score: {run['message']}")
    return Shot(run["score_ns"], run["duration_s"], shapes)


def spread(values: list[float]) -> float:
    """Largest over smallest, less one."""
    return max(values) / min(values) - 1


def report(shots: list[Shot]) -> str:
    """A Markdown table: one row a run, then spread and coverage."""
    labels = list(shots[0].shapes)
    lines = [
        "| run | score | " + " | ".join(labels) + " | wall |",
        "|---|---|" + "---|" * len(labels) + "---|",
    ]
    for number, shot in enumerate(shots, start=1):
        cells = [
            f"{m / 1e3:.3f} [{low / 1e3:.3f}, {high / 1e3:.3f}]"
            for m, low, high in (shot.shapes[label] for label in labels)
        ]
        row = [str(number), f"{shot.score_ns / 1e3:.3f}", *cells, f"{shot.duration_s:.1f} s"]
        lines.append("| " + " | ".join(row) + " |")
    lines.append("")
    scores = [shot.score_ns for shot in shots]
    lines.append(f"Times in us. Spread of the score (max/min - 1): {spread(scores):.2%}.")
    for label in labels:
        pooled = stats.median([shot.shapes[label][0] for shot in shots])
        covered = sum(low <= pooled <= high for _, low, high in (s.shapes[label] for s in shots))
        each = spread([shot.shapes[label][0] for shot in shots])
        lines.append(
            f"{label}: spread {each:.2%}; {covered} of {len(shots)} intervals cover the pooled "
            f"median, {pooled / 1e3:.3f} us."
        )
    return "\n".join(lines)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--runs", type=int, default=10)
    known, rest = parser.parse_known_args()
    shots = []
    for number in range(known.runs):
        shots.append(shoot(known.file, rest))
        print(f"run {number + 1}: {shots[-1].score_ns / 1e3:.3f} us", file=sys.stderr, flush=True)
    print(report(shots))


if __name__ == "__main__":
    main()
