"""What a pull request may put into a checkout, and what a gate keeps its hands off all the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness import cli, pool
from tests.gate_fakes import FakeJudge, double_task, write


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> FakeJudge:
    fake = FakeJudge()
    monkeypatch.setattr(pool, "run_job", fake)
    return fake


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkout to stand in: a repository that is a task, with two committed submissions."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_BASE_REF", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = double_task(tmp_path)
    monkeypatch.chdir(folder)
    write(folder, "good", "better")
    git(folder, "init", "-q", "-b", "main")
    commit(folder)
    return folder


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    words = ["git", *identity, *arguments]
    return subprocess.check_output(words, cwd=folder, text=True, stderr=subprocess.DEVNULL).strip()


def commit(folder: Path) -> None:
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-q", "-m", "more")


def gate(*arguments: str | Path) -> int:
    return cli.run(["gate", "--quiet", *map(str, arguments)])


def judged(judge: FakeJudge) -> list[str]:
    return [Path(job.submission.path).name for job in judge.seen][2:]  # after the controls


# -- a file that is called as the pattern ---------------------------------------------------------


def test_a_file_called_as_the_pattern_does_not_stand_for_it(root: Path, judge: FakeJudge) -> None:
    write(root, "*", "wrong")
    assert gate("submissions/*.py") == 1
    assert judged(judge) == ["*.py", "better.py", "good.py", "wrong.py"]


def test_a_name_with_brackets_is_a_file_that_is_judged(root: Path, judge: FakeJudge) -> None:
    write(root, "a[1]")
    assert gate("submissions/a[1].py") == 0
    assert judged(judge) == ["a[1].py"]
