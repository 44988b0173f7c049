"""A judge that decides by a submission's name, and a task's folder to run the gate in."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from harness import cli
from harness.errors import HarnessError
from harness.gate import place
from harness.model import (
    Case,
    CaseKind,
    CaseResult,
    Failed,
    Job,
    Mode,
    Passed,
    Run,
    Shape,
    Task,
    Timing,
    Verdict,
)
from harness.plan import plan
from harness.progress import Progress
from harness.task import load
from tests.fakes import CPU, make_check, make_run, make_timing

DOUBLE = Path(__file__).parent / "problems" / "double"

#: What a submission's name says about it -> the verdict and message of all its cases.
FAILURES = {
    "wrong": (Verdict.WRONG_ANSWER, "7 of 8 elements are wrong"),
    "crash": (Verdict.CRASHED, "the process ended (exit code 0)"),
    "hang": (Verdict.TIMED_OUT, "no answer in 5 s"),
    "gpu": (Verdict.UNSUPPORTED, "Found no NVIDIA driver"),
    "sly": (Verdict.TAMPERED, "its output still changed"),
}


def double_task(folder: Path) -> Path:
    """A copy of the tiny task, with a folder for submissions."""
    root = folder / "double"
    shutil.copytree(DOUBLE, root, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "submissions").mkdir()
    return root


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the tiny task to stand in, outside of any CI and with a cache of its own."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_BASE_REF", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    root = double_task(folder)
    monkeypatch.chdir(root)
    return root


def gate(*arguments: str | Path) -> int:
    """`harness gate --quiet`: its exit code."""
    return cli.run(["gate", "--quiet", *map(str, arguments)])


def write(root: Path, *names: str) -> list[Path]:
    """Submissions of these names, each with a text of its own."""
    paths = [root / "submissions" / f"{name}.py" for name in names]
    for path in paths:
        path.write_text(f"# {path.stem}\n\n\ndef custom_kernel(data):\n    return data[0] * 2\n")
    return paths


@dataclass
class FakeJudge:
    """Makes runs without running anything; `seen` are the jobs, in order.

    A name of FAILURES fails all cases; "syntax" fails at import, "empty" passes without a case,
    "partial" passes with the last case missing, "mixed" has one case unsupported and one wrong,
    "twice" has one case wrong and the others not finite,
    "machine" is where the machine gives up, and "stop" where somebody presses Ctrl-C.  `pace_ns`
    times a shape in mode benchmark, by the submission's name and path.
    """

    pace_ns: Callable[[Job, Shape], float | None] = lambda job, shape: 1000.0
    seen: list[Job] = field(default_factory=list)

    def __call__(self, job: Job, report: Callable[[Progress], None]) -> Run:
        self.seen.append(job)
        task = load(Path(job.task_root))
        name = job.submission.name
        if name == "machine":
            raise HarnessError("cuda:0: the GPU fell off the bus; reboot")
        if name == "stop":
            raise KeyboardInterrupt
        if job.mode is Mode.BENCHMARK:
            return self._timed(job, task)
        cases = plan(task, job).tests
        if name == "syntax":
            return self._run(job, task, Verdict.COMPILE_ERROR, "SyntaxError: oh", ())
        if name == "empty":
            return self._run(job, task, Verdict.PASSED, "", ())
        results = [CaseResult(case, _outcome(name, i)) for i, case in enumerate(cases)]
        if name == "partial":
            results = results[:-1]
        bad = [r for r in results if isinstance(r.outcome, Failed)]
        verdict = bad[0].verdict if bad else Verdict.PASSED
        message = ""
        if bad:
            count = f"{len(bad)} of {len(results)} cases failed"
            message = f"{count}; {place(bad[0].case)}: {bad[0].message}"
        return self._run(job, task, verdict, message, tuple(results))

    def _timed(self, job: Job, task: Task) -> Run:
        if job.submission.name == "unsteady":
            return self._run(job, task, Verdict.CRASHED, "the process ended", ())
        paces = [
            (shape, [self.pace_ns(job, shape) for _ in range(job.processes or 1)])
            for shape in job.shapes or task.ranked
        ]
        results = tuple(
            CaseResult(
                Case(CaseKind.BENCHMARK, shape, "competition", 0),
                Passed(make_check(), timed([pace or 0.0 for pace in drawn])),
            )
            for shape, drawn in paces
            if None not in drawn
        )
        return self._run(job, task, Verdict.PASSED, "", results)

    def _run(
        self, job: Job, task: Task, verdict: Verdict, message: str, cases: tuple[CaseResult, ...]
    ) -> Run:
        return replace(
            make_run(device=CPU, verdict=verdict, message=message, mode=job.mode, score_ns=None),
            submission=job.submission,
            task=task.name,
            task_digest=task.digest,
            cases=cases,
        )


def _outcome(name: str, number: int) -> Passed | Failed:
    if name == "mixed":
        found = (Verdict.UNSUPPORTED, "no FP4") if number == 0 else FAILURES["wrong"]
        return Failed(*found)
    if name == "twice":
        return Failed(*(FAILURES["wrong"] if number == 0 else (Verdict.NONFINITE, "1 of 8 is NaN")))
    if name in FAILURES:
        return Failed(*FAILURES[name])
    return Passed(make_check())


def noisy(
    ratios: dict[str, float], *, sd: float = 0.002, seed: int = 1
) -> Callable[[Job, Shape], float | None]:
    """Times of some 20 us with log-normal noise between processes, by the submission's name."""
    draw = times(ratios, sd=sd, seed=seed)

    def pace(job: Job, shape: Shape) -> float | None:
        return draw(job.submission.name)

    return pace


def timed(medians_ns: Sequence[float]) -> Timing:
    """A timing whose processes had these medians."""
    made = make_timing(medians_ns[0], processes=len(medians_ns))
    return replace(made, process_medians_ns=tuple(medians_ns))


def times(ratios: dict[str, float], *, sd: float, seed: int) -> Callable[[str], float]:
    """One process's time in ns of a submission by its name, another at every call."""
    draw = random.Random(seed)
    return lambda name: 20_000 * ratios.get(name, 1.0) * draw.lognormvariate(0, sd)
