"""What a worker gains that forges its own events: in the published time, and by the judge's clock.

    python -m benchmarks.forgery [--device cuda:0] [--processes 4] [--lies 0 0.5 1 2]

Times kernels whose module takes so many microseconds off every event that is read in its process,
the harness's own included, on the shortest ranked shape.  Prints a Markdown table.  A lie of 0 is
the honest kernel; what a lie takes off the published time is what docs call open, and by the
judge's clock alone (`harness leaderboard --judge-clock`) it takes nothing off.
"""

from __future__ import annotations

import argparse
import math
import sys

from benchmarks.gate_power import ROOT, altered, run_once, victim
from harness import samples
from harness.model import Run, Submission, Timing
from harness.sources import read_submission
from harness.task import load

#: A Triton kernel launched plainly and in a graph (ordinary loads), and bulk copies.
KERNELS = ("plain", "graph", "cuda_inline")

_LIE = """
import torch as _torch

_honest = _torch.cuda.Event.elapsed_time
_torch.cuda.Event.elapsed_time = lambda self, end: _honest(self, end) - {ms!r}
"""


def main() -> int:
    """Measure and print; 1 when a lie gained more by the judge's clock than its noise."""
    arguments = _arguments()
    task = load(ROOT)
    shape = min(task.ranked, key=lambda one: one.light_speed_ns or 0.0)
    print(f"{shape.label}, {arguments.processes} processes; us\n")
    print("| kernel | lie | published | less by | by the judge's clock | its middle, less by |")
    print("|---|--:|--:|--:|--:|--:|")
    held = True
    for kernel in KERNELS:
        honest: tuple[float, float, float] | None = None
        for lie_us in arguments.lies:
            run = run_once(
                task, forged(kernel, lie_us), arguments.device, arguments.processes, (shape,)
            )
            published, judged = _time(run), _time(samples.by_the_judge(run))
            noise = (judged.high_ns - judged.low_ns) / 2e3
            times = published.median_ns / 1e3, judged.median_ns / 1e3, noise
            honest = honest or times
            gained, moved = honest[0] - times[0], honest[1] - times[1]
            held = held and moved <= math.hypot(honest[2], noise)
            print(
                f"| {kernel} | {lie_us:g} | {times[0]:.2f} | {gained:+.2f} | "
                f"{judged.low_ns / 1e3:.2f} to {judged.high_ns / 1e3:.2f} | {moved:+.2f} |",
                flush=True,
            )
    print(f"\nby the judge's clock {'no lie gained more than noise' if held else 'A LIE GAINED'}")
    return 0 if held else 1


def forged(kernel: str, lie_us: float) -> Submission:
    """The kernel with a lie of so many microseconds, or as it is."""
    path = ROOT / "submissions" / f"{kernel}.py"
    original = read_submission(path, None) if path.exists() else victim(kernel)
    return altered(original, original.source + _LIE.format(ms=lie_us / 1e3)) if lie_us else original


def _time(run: Run) -> Timing:
    (timing,) = [case.timing for case in run.cases if case.timing is not None]
    return timing


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--lies", type=float, nargs="+", default=[0.0, 0.5, 1.0, 2.0])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
