"""Makes each submission a test: copy beside the submissions, then `pytest submissions`.

A file that defines `custom_kernel` is judged as by `harness run --mode test`: in a sandbox, in a
process of its own, on every test case of the task.  What this machine cannot run is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.model import Job, Mode, Run, Verdict
from harness.pool import run_job
from harness.sources import read_submission
from harness.task import find_root


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--harness-device", default="auto", help="auto, cpu, cuda or cuda:N")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.File | None:
    named = file_path.suffix == ".py" and file_path.name != "conftest.py"
    if named and b"custom_kernel" in file_path.read_bytes():
        return SubmissionFile.from_parent(parent, path=file_path)
    return None


class SubmissionFile(pytest.File):
    """One submission, never imported here."""

    def collect(self) -> Iterator[pytest.Item]:
        yield SubmissionTest.from_parent(self, name="submission")


class WrongSubmission(Exception):
    """A run whose verdict is not `passed`."""


class SubmissionTest(pytest.Item):
    """Judges its file."""

    def runtest(self) -> None:
        run = run_job(
            Job(
                task_root=str(find_root(None, self.path.parent, None)),
                submission=read_submission(self.path, None),
                device=self.config.getoption("--harness-device"),
                mode=Mode.TEST,
            ),
            lambda progress: None,
        )
        if run.verdict is Verdict.UNSUPPORTED:
            pytest.skip(f"not verified: {run.message}")
        if run.verdict is not Verdict.PASSED:
            raise WrongSubmission(explain(run))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:  # type: ignore[override]
        if isinstance(excinfo.value, WrongSubmission):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"submission {self.path.name}"


def explain(run: Run) -> str:
    """The run's verdict, then a line for each case that did not pass."""
    lines = [f"{run.verdict}: {run.message}"]
    for result in run.cases:
        if result.verdict is not Verdict.PASSED:
            place = f"{result.case.shape} ({result.case.inputs})"
            lines.append(f"  {result.verdict} {place}: {result.message}")
    return "\n".join(lines)
