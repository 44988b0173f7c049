"""One judgement whose judge is this process, for compute-sanitizer to look into.

    compute-sanitizer --tool memcheck --error-exitcode 9 python -m tests.gpu.memcheck

The sanitizer follows a child by variables in its environment, and a worker's is made from scratch:
it sees the judge's half of the exchange, which owns the memory that both halves use.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from harness.judge_process import judge_job
from harness.model import IsolationPolicy, Job, Mode, Shape, Verdict
from harness.progress import Progress
from harness.sources import read_submission

ROOT = Path(__file__).resolve().parents[2]
SHAPE = Shape((("m", 128), ("k", 256), ("l", 2)))
#: Everything takes many times longer.
TIMEOUT_NS = 500_000_000_000


def main() -> int:
    """Judge it; 1 when it does not pass."""
    begin_s = time.monotonic()

    def report(progress: Progress) -> None:
        sys.stderr.write(f"{time.monotonic() - begin_s:6.1f} s  {progress.stage}\n")

    job = Job(
        str(ROOT),
        read_submission(ROOT / "tests/submissions/honest_nvfp4.py", None),
        "cuda:0",
        Mode.TEST,
        (SHAPE,),
        timeout_ns=TIMEOUT_NS,
        isolation=IsolationPolicy.OFF,
    )
    run = judge_job(job, report)
    sys.stdout.write(f"{run.verdict}: {len(run.cases)} cases {run.message}\n")
    return 0 if run.verdict is Verdict.PASSED else 1


if __name__ == "__main__":
    sys.exit(main())
