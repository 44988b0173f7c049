"""The examples: they parse, keep to least privilege, and call what exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import forgery, gate_alarms, gate_power
from harness.commands.gate import command

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
WORKFLOWS = sorted((EXAMPLES / "github").glob("*.yml"))

pytest_plugins = ["pytester"]


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        yield from job["steps"]


def test_there_is_a_workflow_for_a_cpu_and_one_for_a_gpu() -> None:
    assert [path.name for path in WORKFLOWS] == ["gate-gpu.yml", "gate.yml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_pins_actions_by_hash_and_may_only_read(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    assert document["permissions"] == {}
    assert [job["permissions"] for job in document["jobs"].values()] == [{"contents": "read"}]
    # YAML reads the key `on` as true.
    assert "pull_request_target" not in document[True]
    for step in steps(path):
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"])
        if step.get("uses", "").startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] is False
        # What an outsider chooses reaches a shell as a variable, never as text.
        assert "${{" not in step.get("run", "")
    for line in path.read_text().splitlines():
        if "uses:" in line:
            assert re.search(r"# v\d+\.\d+\.\d+$", line), "a hash without its version"


def test_kept_verdicts_lie_outside_of_the_checkout() -> None:
    """In it, a pull request could commit verdicts of its own."""
    kept = {
        step["with"]["path"]
        for path in WORKFLOWS
        for step in steps(path)
        if step.get("uses", "").startswith("actions/cache@")
    }
    assert kept == {"${{ runner.temp }}/verdicts"}
    named = {words[words.index("--cache") + 1] for _, words in calls() if "--cache" in words}
    assert named == {"$RUNNER_TEMP/verdicts"}


def calls() -> Iterator[tuple[str, list[str]]]:
    for path in WORKFLOWS:
        for step in steps(path):
            if "harness gate" in step.get("run", ""):
                yield path.name, shlex.split(step["run"])
    hooks = yaml.safe_load((EXAMPLES / "pre-commit" / ".pre-commit-config.yaml").read_text())
    for hook in hooks["repos"][0]["hooks"]:
        yield hook["id"], [*shlex.split(hook["entry"]), "submissions/x.py"]


@pytest.mark.parametrize(("name", "words"), list(calls()), ids=lambda value: str(value)[:16])
def test_every_call_of_the_gate_is_one_that_it_takes(name: str, words: list[str]) -> None:
    assert words[0].endswith("harness") and words[1] == "gate"
    context = command.make_context("gate", words[2:])
    assert context.params["files"]


def test_a_pytest_run_judges_each_submission(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness import pool
    from tests.gate_fakes import FakeJudge, double_task, write

    root = double_task(pytester.path)
    write(root, "good", "wrong", "gpu")
    (root / "submissions" / "notes.py").write_text("x = 1\n")
    conftest = (EXAMPLES / "pytest" / "conftest.py").read_text()
    (root / "submissions" / "conftest.py").write_text(conftest)
    monkeypatch.setattr(pool, "run_job", FakeJudge())
    result = pytester.runpytest_inprocess(root / "submissions", "-rs", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1, skipped=1)
    result.stdout.fnmatch_lines(
        ["*wrong_answer: 3 of 3 cases failed; 8 (competition): 7 of 8 elements are wrong*"]
    )
    result.stdout.fnmatch_lines(
        ["*not verified: 3 of 3 cases failed; 8 (competition): Found no NVIDIA driver*"]
    )


def test_the_stated_rate_of_false_alarms_is_what_the_rule_has() -> None:
    ours, looser = gate_alarms.alarms(3, 20_000)
    assert 0.038 < ours < 0.047  # 4.2%; three standard errors either way
    assert 0.086 < looser < 0.1  # 9.2%, which is why the rule is not loosened


def test_the_planted_delay_still_fits_its_victim() -> None:
    source = gate_power.victim().source
    planted = gate_power.planted(source, {(7168, 16384, 1): 1234})
    compile(planted, "planted.py", "exec")
    assert "delay = DELAYS.get((m, k, batches), 0)" in planted
    with pytest.raises(ValueError, match="plant the delay anew"):
        gate_power.planted(planted, {})


@pytest.mark.parametrize("victim", forgery.KERNELS)
def test_a_forged_kernel_is_the_honest_one_and_a_lie(victim: str) -> None:
    honest, liar = forgery.forged(victim, 0.0), forgery.forged(victim, 0.5)
    compile(liar.source, liar.path, "exec")
    assert liar.source.startswith(honest.source)
    assert "_honest(self, end) - 0.0005" in liar.source
    assert "elapsed_time" not in honest.source
    assert liar.sha256 != honest.sha256
