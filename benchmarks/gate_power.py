"""What the gate's comparison finds on this GPU: a slow-down planted on purpose, and nothing at all.

    python -m benchmarks.gate_power [--device cuda:0] [--planted 10] [--same 20] [--seconds N]

Plants a delay of 3% of each shape's own time into the kernel of submissions/triton_graph.py,
launched plainly: the programs that are scheduled last go on spinning on the clock for so long.
Then compares, as `harness gate --baseline --max-slowdown 1` does, the planted copy with one whose
delay is zero (an alarm is wanted) and the original with itself (none is).  Prints a Markdown table,
one line a comparison.  After --seconds no comparison begins, and the last one ends with the pairs
it has, as the gate's does at the end of its budget; several of these at once share a GPU and fill
its gaps.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.methods import source_of
from harness import slowdown
from harness.model import IsolationPolicy, Job, Mode, Run, Shape, Submission, Task, Verdict
from harness.pool import run_job
from harness.slowdown import Pace, Speed
from harness.sources import submission_of
from harness.task import load

ROOT = Path(__file__).resolve().parent.parent
VICTIM = "plain"  # of timed/; a graph's own gaps differ by 3% from process to process
MAX_PERCENT = 1.0
#: The clock that the delay is counted in, in GHz: an H200 under load (its NVML maximum).
SM_GHZ = 1.98

_SPIN = '''
SPIN: tl.constexpr = tl.constexpr("""
{ .reg .b64 begin, now, cycles;
  .reg .pred wait;
  cvt.s64.s32 cycles, $1;
  mov.u64 begin, %clock64;
again:
  mov.u64 now, %clock64;
  sub.u64 now, now, begin;
  setp.lt.u64 wait, now, cycles;
  @wait bra again;
  mov.u32 $0, 0; }
""")
'''
#: On a scalar: of a (1, 1) tensor each thread holds two copies (triton 3.6), and spins for both.
#: The last 132, one for each SM: of them some one ends last.  More cost more than the delay (four
#: for each SM: 4.4%, not 3%, H200), because who spins takes issue slots from those that compute.
_TAIL = """
    order = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    if order >= tl.num_programs(0) * tl.num_programs(1) - 132:
        spun = tl.inline_asm_elementwise(SPIN, "=r,r", [delay], tl.int32, False, 1)
        total += spun.to(tl.float32)
"""


def planted(source: str, cycles: dict[tuple[int, ...], int]) -> str:
    """The victim's text with a spin of so many clock cycles for each (m, k, l).

    Raises ValueError when the victim no longer looks as this expects.
    """
    for old, new in (
        ("@triton.jit\ndef gemv(\n", f"DELAYS = {cycles!r}\n{_SPIN}\n\n@triton.jit\ndef gemv(\n"),
        ("    a, b, sfa, sfb, c, m, k,\n", "    a, b, sfa, sfb, c, m, k, delay,\n"),
        ("        k,\n        ROWS=rows,", "        k,\n        delay,\n        ROWS=rows,"),
        (
            "    k = 2 * half_k\n",
            "    k = 2 * half_k\n    delay = DELAYS.get((m, k, batches), 0)\n",
        ),
        ("    tl.store(c + batch * m + row,", f"{_TAIL}    tl.store(c + batch * m + row,"),
    ):
        if source.count(old) != 1:
            raise ValueError(f"{VICTIM} does not hold {old!r} once: plant the delay anew")
        source = source.replace(old, new)
    return source


def main() -> int:
    arguments = _arguments()
    end = time.monotonic() + arguments.seconds
    task, original = load(ROOT), victim()
    times = slowdown.times_of(run_once(task, original, arguments.device, 1))
    slower, base = (delayed(original, times, share) for share in (arguments.share, 0.0))
    print("| head | outcome | slower by (95%) | pairs | wall s |\n|---|---|---|--:|--:|")
    planned = ((base, slower, arguments.planted), (original, original, arguments.same))
    (found, planted), (false, same) = (
        _alarms(task, before, head, arguments.device, count, end) for before, head, count in planned
    )
    print(f"\nfound {found} of {planted}; false alarms {false} of {same}")
    return 0 if (found, false) == (planted, 0) and planted + same else 1


def victim(name: str = VICTIM) -> Submission:
    """One of timed/: by default the submission that is made slower."""
    return submission_of(Path(f"{name}.py"), source_of(name).encode(), None)


def altered(original: Submission, source: str) -> Submission:
    """A submission with another text."""
    return replace(original, source=source, sha256=hashlib.sha256(source.encode()).hexdigest())


def _alarms(
    task: Task, base: Submission, head: Submission, device: str, count: int, end: float
) -> tuple[int, int]:
    """How many comparisons find the head slower, of how many that began before `end`."""
    alarms = made = 0
    while made < count and (begin := time.monotonic()) < end:
        speed = compare(task, base, head, device, end)
        alarms, made = alarms + bool(speed.at(Pace.SLOWER)), made + 1
        print(f"{row(head.name, speed)} {time.monotonic() - begin:.0f} |", flush=True)
    return alarms, made


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--planted", type=int, default=10)
    parser.add_argument("--same", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=math.inf, help="default: no end")
    parser.add_argument("--share", type=float, default=0.03, help="of each shape's time")
    return parser.parse_args()


def delayed(
    original: Submission, times: dict[Shape, tuple[float, ...]], share: float
) -> Submission:
    """The victim with a delay of `share` of each shape's time, given in ns."""
    cycles = {
        tuple(size for _, size in shape.axes): round(share * medians[0] * SM_GHZ)
        for shape, medians in times.items()
    }
    return replace(altered(original, planted(original.source, cycles)), name="planted")


def run_once(
    task: Task,
    submission: Submission,
    device: str,
    processes: int,
    shapes: tuple[Shape, ...] = (),
    isolation: IsolationPolicy = IsolationPolicy.AUTO,
) -> Run:
    """Time a submission as the gate does, in so many processes.  Exits when it does not pass."""
    job = Job(
        task.root,
        submission,
        device,
        Mode.BENCHMARK,
        shapes,
        processes=processes,
        budget_ns=1,
        isolation=isolation,
    )
    run = run_job(job, lambda progress: None)
    if run.verdict is not Verdict.PASSED:
        sys.exit(f"{submission.name}: {run.verdict}: {run.message}")
    return run


def compare(
    task: Task, base: Submission, head: Submission, device: str, end: float = math.inf
) -> Speed:
    """Hold `head` against `base` as the gate does whose budget ends at `end` (monotonic, s)."""
    sides = {"base": base, "head": head}
    return slowdown.compare(
        lambda side, processes, shapes: run_once(task, sides[side], device, processes, shapes),
        task.ranked,
        baseline="the original",
        max_percent=MAX_PERCENT,
        time_left=lambda: time.monotonic() < end,
    )


def row(name: str, speed: Speed) -> str:
    """A line of the table, without the wall time."""
    paces = ", ".join(sorted({shape.pace.value for shape in speed.shapes}))
    each = "; ".join(f"{shape.shape.label} {shape.percent}" for shape in speed.shapes)
    pairs = max(shape.pairs for shape in speed.shapes)
    return f"| {name} | {paces} | {each} | {pairs} |"


if __name__ == "__main__":
    sys.exit(main())
