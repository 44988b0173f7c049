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
    """One run: its wall time, and the time and both ends of its interval of the score and of each
    shape, in ns."""

    score: tuple[float, float, float]
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
    score = run["score_ns"], run["score_low_ns"], run["score_high_ns"]
    return Shot(score, run["duration_s"], shapes)


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
            for m, low, high in (shot.score, *(shot.shapes[label] for label in labels))
        ]
        row = [str(number), *cells, f"{shot.duration_s:.1f} s"]
        lines.append("| " + " | ".join(row) + " |")
    lines.append("")
    lines.append("Times in us; spread is the largest over the smallest, less one.")
    lines.append(_coverage("score", [shot.score for shot in shots]))
    lines += [_coverage(label, [shot.shapes[label] for shot in shots]) for label in labels]
    return "\n".join(lines)


def _coverage(name: str, times: list[tuple[float, float, float]]) -> str:
    medians = [median for median, _, _ in times]
    pooled = stats.median(medians)
    covered = sum(low <= pooled <= high for _, low, high in times)
    return (
        f"{name}: spread {spread(medians):.2%}; {covered} of {len(times)} intervals cover the "
        f"pooled median, {pooled / 1e3:.3f} us."
    )


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--runs", type=int, default=10)
    known, rest = parser.parse_known_args()
    shots = []
    for number in range(known.runs):
        shots.append(shoot(known.file, rest))
        print(f"run {number + 1}: {shots[-1].score[0] / 1e3:.3f} us", file=sys.stderr, flush=True)
    print(report(shots))


if __name__ == "__main__":
    main()
