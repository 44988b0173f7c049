"""Kept verdicts: only what is worth keeping, only where nothing has changed, never in the way."""

from __future__ import annotations

import importlib.metadata
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness import machine, verdict_cache
from harness.gate_controls import right_control
from harness.model import IsolationPolicy, Job, Mode, Run, Task, Verdict
from harness.task import load
from harness.verdict_cache import VerdictCache, machine_facts, verdict_key
from tests.gate_fakes import DOUBLE, FakeJudge

FACTS = (("harness", "abc"), ("torch", "2.13.0"), ("gpus", ""))


@pytest.fixture
def task() -> Task:
    return load(DOUBLE)


@pytest.fixture
def job() -> Job:
    return Job(str(DOUBLE), right_control(DOUBLE), "cpu", Mode.TEST)


@pytest.fixture
def run(job: Job) -> Run:
    return FakeJudge()(job, lambda step: None)


def test_what_was_put_comes_back_under_its_present_name(
    tmp_path: Path, task: Task, job: Job, run: Run
) -> None:
    cache, key = VerdictCache(tmp_path / "new"), verdict_key(job, task, FACTS)
    assert cache.get(key, job.submission, task) is None
    cache.put(key, replace(run, log="much"))
    moved = replace(job.submission, name="moved", path="elsewhere/moved.py")
    found = cache.get(key, moved, task)
    assert found is not None
    assert found.submission == moved
    assert found.cases == run.cases
    assert found.log == "", "a log may hold anything, and no verdict needs it"
    assert job.submission.source not in (tmp_path / "new" / f"{key}.json").read_text()


@pytest.mark.parametrize("verdict", list(Verdict))
def test_only_passed_and_unsupported_are_kept(
    verdict: Verdict, tmp_path: Path, task: Task, job: Job, run: Run
) -> None:
    cache = VerdictCache(tmp_path)
    cache.put("k", replace(run, verdict=verdict))
    kept = verdict in (Verdict.PASSED, Verdict.UNSUPPORTED)
    assert (cache.get("k", job.submission, task) is not None) == kept
    assert bool(list(tmp_path.iterdir())) == kept, "what is never used is not written either"


CHANGES: dict[str, Callable[[Job, Task], tuple[Job, Task, object]]] = {
    "submission": lambda j, t: (
        replace(j, submission=replace(j.submission, sha256="0" * 64)), t, FACTS
    ),
    "task": lambda j, t: (j, replace(t, digest="0" * 64), FACTS),
    "device": lambda j, t: (replace(j, device="cuda:0"), t, FACTS),
    "isolation": lambda j, t: (replace(j, isolation=IsolationPolicy.OFF), t, FACTS),
    "timeout": lambda j, t: (replace(j, timeout_ns=10**9), t, FACTS),
    "mode": lambda j, t: (replace(j, mode=Mode.RANKED), t, FACTS),
    "torch": lambda j, t: (j, t, (FACTS[0], ("torch", "2.14.0"), FACTS[2])),
    "harness": lambda j, t: (j, t, (("harness", "abd"), *FACTS[1:])),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_every_thing_that_can_change_a_verdict_changes_its_key(
    what: str, job: Job, task: Task
) -> None:
    other_job, other_task, facts = CHANGES[what](job, task)
    assert isinstance(facts, tuple)
    assert verdict_key(other_job, other_task, facts) != verdict_key(job, task, FACTS)
    assert verdict_key(job, task, FACTS) == verdict_key(job, task, FACTS)


def test_a_name_does_not_change_the_key(job: Job, task: Task) -> None:
    moved = replace(job, submission=replace(job.submission, name="other", path="other.py"))
    assert verdict_key(moved, task, FACTS) == verdict_key(job, task, FACTS)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"key": "k"}',
        b'{"key": "k", "run": {}}',
        b"[" * 9999,
    ],
)
def test_a_damaged_entry_is_a_miss(
    content: bytes, tmp_path: Path, task: Task, job: Job, run: Run
) -> None:
    cache = VerdictCache(tmp_path)
    (tmp_path / "k.json").write_bytes(content)
    assert cache.get("k", job.submission, task) is None
    cache.put("k", run)
    assert cache.get("k", job.submission, task) is not None


def test_a_pipe_in_the_place_of_an_entry_is_not_waited_for(
    tmp_path: Path, task: Task, job: Job
) -> None:
    os.mkfifo(tmp_path / "k.json")
    assert VerdictCache(tmp_path).get("k", job.submission, task) is None


def test_an_entry_under_another_name_is_a_miss(
    tmp_path: Path, task: Task, job: Job, run: Run
) -> None:
    cache = VerdictCache(tmp_path)
    cache.put("k", run)
    (tmp_path / "k.json").rename(tmp_path / "l.json")
    assert cache.get("l", job.submission, task) is None
    cache.put("k", run)
    assert cache.get("k", replace(job.submission, sha256="0" * 64), task) is None
    assert cache.get("k", job.submission, replace(task, digest="0" * 64)) is None


def test_an_entry_that_was_edited_to_a_failure_is_a_miss(
    tmp_path: Path, task: Task, job: Job, run: Run
) -> None:
    cache = VerdictCache(tmp_path)
    cache.put("k", run)
    document = json.loads((tmp_path / "k.json").read_text())
    document["run"]["verdict"] = "crashed"
    (tmp_path / "k.json").write_text(json.dumps(document))
    assert cache.get("k", job.submission, task) is None


def test_the_longest_unused_go_first(
    tmp_path: Path, task: Task, job: Job, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict_cache, "ENTRIES", 2)
    cache = VerdictCache(tmp_path)
    for age, key in ((300, "a"), (200, "b")):
        cache.put(key, run)
        os.utime(tmp_path / f"{key}.json", (1e9 - age, 1e9 - age))
    assert cache.get("a", job.submission, task) is not None  # used again: b is older now
    cache.put("c", run)
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "c.json"}


def test_a_folder_that_cannot_be_written_raises_and_leaves_nothing(run: Run) -> None:
    with pytest.raises(OSError, match="proc"):
        VerdictCache(Path("/proc/verdicts")).put("k", run)


def test_facts_name_the_harness_torch_the_processor_and_what_is_visible() -> None:
    facts = dict(machine_facts({"CUDA_VISIBLE_DEVICES": "1"}))
    assert len(facts["harness"]) == 64
    assert facts["visible"] == "1"
    assert facts["torch"]
    assert facts["processor"]
    assert machine_facts({}) == machine_facts({})


def test_facts_name_every_installed_package() -> None:
    facts = dict(machine_facts({}))
    assert facts["click"] == importlib.metadata.version("click")
    assert facts["nvidia-ml-py"]


def test_a_compiler_that_was_updated_in_place_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    compiler, toolkit = tmp_path / "g++-12", tmp_path / "cuda" / "bin" / "nvcc"
    toolkit.parent.mkdir(parents=True)
    for path in (compiler, toolkit):
        path.write_text("12.1")
        path.chmod(0o755)
    (tmp_path / "g++").symlink_to(compiler)
    seen = {machine_facts({}, tmp_path / "cuda")}
    compiler.write_text("12.22")
    seen.add(machine_facts({}, tmp_path / "cuda"))
    toolkit.write_text("12.9.9")
    seen.add(machine_facts({}, tmp_path / "cuda"))
    os.utime(toolkit, (1, 1))
    seen.add(machine_facts({}, tmp_path / "cuda"))
    (tmp_path / "g++").unlink()
    seen.add(machine_facts({}, tmp_path / "cuda"))
    assert len(seen) == 5


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of a user without a home."""

    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", none)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_without_a_home_the_cache_is_a_private_folder_below_the_temporary_one(
    homeless: Path, run: Run, job: Job, task: Task
) -> None:
    folder = machine.cache_folder()
    assert folder.parent == homeless
    assert folder.stat().st_mode & 0o777 == 0o700
    assert machine.cache_folder() == folder, "the same for the next gate"
    VerdictCache(folder / "verdicts").put("k", run)
    assert VerdictCache(folder / "verdicts").get("k", job.submission, task) is not None


@pytest.mark.parametrize("how", ["open to others", "a link", "a file", "another's"])
def test_a_folder_that_others_could_fill_is_no_cache(
    how: str, homeless: Path, run: Run, job: Job, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = machine.cache_folder()
    if how == "open to others":
        folder.chmod(0o770)
    elif how == "another's":
        other = os.getuid() + 1
        folder.rename(homeless / f"kernel-harness-{other}")
        monkeypatch.setattr(os, "getuid", lambda: other)
    else:
        folder.rmdir()
        folder.touch() if how == "a file" else folder.symlink_to(homeless)
    cache = VerdictCache(machine.cache_folder() / "verdicts")
    assert cache.get("k", job.submission, task) is None
    with pytest.raises(OSError):
        cache.put("k", run)


def test_no_folder_at_all_is_no_cache(homeless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(homeless / "missing"))
    assert not machine.cache_folder().exists()
