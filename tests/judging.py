"""Judge many small submissions in one process: what `harness run` does, less a process for each.

python -m tests.judging TASK_ROOT MODE FILE... prints one JSON object a line; see `Judged`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import codec, sandbox, tree
from harness.judge_process import judge_job
from harness.model import Job, Mode
from harness.sources import read_submission

ROOT = Path(__file__).resolve().parents[1]
SUBMISSIONS = Path(__file__).parent / "submissions"
#: Seconds that an import and a call may take: enough on a machine that does other things, or short
#: enough to wait for what never answers.
PATIENT, TIGHT = 60, 4
#: One shape to test, one with its hard families, two to time.
_DOUBLE = "tests:\n  - {n: 1000, seed: 2}\nhard:\n  - {n: 64, seed: 3, inputs: [signed]}\n"
_NVFP4 = (
    "tests:\n  - {m: 128, k: 256, l: 2, seed: 1}\n"
    "hard:\n  - {m: 128, k: 64, l: 3, seed: 1, inputs: [all_codes, normal]}\n"
)


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one file, and what was left of it."""

    name: str
    verdict: str
    message: str
    log: str
    left: tuple[str, ...]  # names of processes and files
    seconds: float
    times_ns: tuple[float, ...]  # one for each timed shape


def small_task(folder: Path, name: str, *, call_s: int = PATIENT) -> Path:
    """A copy of the tiny task or of the shipped one, with few cases."""
    source = ROOT / "tests/problems/double" if name == "double" else ROOT
    folder.mkdir()
    for part in ("task", "reference"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source / part, folder / part, ignore=ignored)
    text = (source / "shapes.yaml").read_text(encoding="utf-8")
    kept = text[: text.index("tests:")] + text[text.index("ranked_seed:") : text.index("limits:")]
    rows = _DOUBLE if name == "double" else _NVFP4
    limits = f"limits: {{import_s: {call_s}, call_s: {call_s}, run_s: 120, memory_gib: 4}}\n"
    (folder / "shapes.yaml").write_text(kept + rows + limits, encoding="utf-8")
    return folder


def judge(root: Path, mode: Mode, files: Sequence[Path]) -> Iterator[Judged]:
    """Judge the files one after the other in a fresh process; ends when the last is done."""
    with tempfile.TemporaryDirectory(prefix="harness-judging-", dir="/tmp") as private:
        # pytest's folders are closed to other users, which a worker may be.
        Path(private).chmod(0o755)
        environment = {**os.environ, "TMPDIR": private, "XDG_CACHE_HOME": private + "/cache"}
        command = [sys.executable, "-m", "tests.judging", str(root), mode.value, *map(str, files)]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                yield codec.decode(Judged, json.loads(line))
    assert process.returncode == 0


def _judge_one(root: Path, mode: Mode, file: Path) -> Judged:
    begin = time.monotonic()
    job = Job(str(root), read_submission(file, None), "cpu", mode, processes=1, budget_ns=1)
    run = judge_job(job, lambda progress: None)
    seconds = time.monotonic() - begin
    times = tuple(case.timing.median_ns for case in run.cases if case.timing is not None)
    return Judged(file.stem, run.verdict.value, run.message, run.log, _left(), seconds, times)


def _left() -> tuple[str, ...]:
    """Processes below this one, after a moment for the kernel, and folders in its private place."""
    until = time.monotonic() + 3
    while (alive := [p for p in tree.descendants(os.getpid()) if tree.alive(p)]) and (
        time.monotonic() < until
    ):
        time.sleep(0.02)
    folder = Path(os.environ["TMPDIR"])
    files = [p.name for p in folder.iterdir() if p.name not in ("harness-cpu.lock", "cache")]
    return (*map(tree.name, alive), *files)


def main() -> None:
    """Be the process that `judge` starts."""
    sandbox.harden_self()
    root, mode, *files = sys.argv[1:]
    for file in files:
        found = _judge_one(Path(root), Mode(mode), Path(file))
        print(json.dumps(codec.encode(found)), flush=True)


if __name__ == "__main__":
    main()
