"""Whole runs on a GPU of submissions that are given as text, on copies of the tiny task."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path

from harness.model import CaseKind, Job, Mode, Run, Shape, Verdict
from harness.pool import run_job
from harness.sources import submission_of

DEVICE = "cuda:0"
DOUBLE = Path(__file__).resolve().parents[1] / "problems" / "double"


def copy_double(target: Path, *, call_s: float = 30) -> Path:
    """A task y = 2 x of our own, whose calls may take `call_s`, the first of a shape included."""
    shutil.copytree(DOUBLE, target, ignore=shutil.ignore_patterns("__pycache__", "controls"))
    path = target / "shapes.yaml"
    *lines, limits = path.read_text(encoding="utf-8").splitlines()
    assert limits.startswith("limits:")
    s = f"{call_s:g}"
    lines.append(f"limits: {{import_s: {s}, call_s: {s}, run_s: 300, memory_gib: 16}}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return target


def judge(source: str, root: Path, *, timed: int | None = None) -> Run:
    """Check a submission on all cases of the task, or check and time it on one size, `timed`."""
    submission = submission_of(Path("odd.py"), textwrap.dedent(source).encode(), None)
    if timed is None:
        job = Job(str(root), submission, DEVICE, Mode.TEST)
    else:
        shape = Shape((("n", timed),))
        job = Job(
            str(root), submission, DEVICE, Mode.BENCHMARK, (shape,), processes=1, observe=True
        )
    return run_job(job, lambda progress: None)


def verdicts(run: Run) -> dict[str, Verdict]:
    """The verdict of each size that was checked; sizes are the task's labels."""
    return {c.case.shape.label: c.verdict for c in run.cases if c.case.kind is CaseKind.TEST}


def median_ns(run: Run) -> float:
    """The published time of the one size that was timed."""
    (timing,) = [case.timing for case in run.cases if case.timing is not None]
    return timing.median_ns
