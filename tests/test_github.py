"""GitHub: commands that the runner reads as meant, and nothing beyond its limits."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness import cli, pool
from harness.gate import Finding, GateReport, State, with_speed
from harness.model import Job, Run, Verdict
from harness.progress import Progress
from harness.render.github import command, line_of, summary, workflow_commands
from harness.slowdown import Pace
from tests.gate_fakes import FakeJudge, double_task, write
from tests.test_junit import RIGHT, finding, report, speed


def same(path: str) -> str:
    return path


def undone(line: str) -> tuple[str, dict[str, str], str]:
    """Read a command as actions/runner does: level, properties, message."""
    found = re.fullmatch(r"::(\w+) ([^\n]*?)::([^\n]*)", line)
    assert found is not None
    pairs = (pair.split("=", 1) for pair in found.group(2).split(",") if pair)

    def decoded(value: str, *codes: tuple[str, str]) -> str:
        for code, character in (*codes, ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
            value = value.replace(code, character)
        return value

    properties = {k: decoded(v, ("%3A", ":"), ("%2C", ",")) for k, v in pairs}
    return found.group(1), properties, decoded(found.group(3))


def test_percent_signs_and_newlines_survive_and_start_no_second_command() -> None:
    line = command("error", "100% wrong\r\n::error::%0A x", file="a,b:c%.py", title="x::y")
    assert "\n" not in line and "\r" not in line
    level, properties, message = undone(line)
    assert level == "error"
    assert properties == {"file": "a,b:c%.py", "title": "x::y"}
    # Control characters are shown as escapes, as everywhere else.
    assert message == "100% wrong\\r\\n::error::%0A x"


def test_a_command_of_the_old_form_is_not_passed_on() -> None:
    assert "##[" not in command("error", "##[add-mask]secret", file="##[warning]x.py")


def test_an_annotation_is_on_the_line_that_the_message_names() -> None:
    source = "import torch\n\n\ndef helper():\n    raise ValueError\n\n\ndef custom_kernel(data):\n"
    submission = replace(RIGHT, path="s/x.py", source=source)
    named = Finding(submission, State.FAILED, "runtime_error: ValueError: (s/x.py:5)")
    assert line_of(named) == 5
    assert line_of(Finding(submission, State.FAILED, "wrong_answer: 3 are wrong")) == 8
    assert line_of(Finding(submission, State.FAILED, "no such line (s/x.py:999999999999)")) == 8
    nothing = replace(submission, source="x = 1\n")
    assert line_of(Finding(nothing, State.FAILED, "defines no custom_kernel")) == 1
    assigned = replace(submission, source="k = 1\ncustom_kernel = torch.compile(k)\n")
    assert line_of(Finding(assigned, State.FAILED, "")) == 2


@pytest.mark.parametrize(
    ("name", "level"), [("wrong", "error"), ("gpu", "warning"), ("partial", "warning")]
)
def test_failures_are_errors_and_what_is_not_verified_is_a_warning(name: str, level: str) -> None:
    lines = workflow_commands(report(finding(name)), same)
    found = [undone(line) for line in lines if f"submissions/{name}.py" in line]
    assert [entry[0] for entry in found] == [level]
    assert found[0][1]["file"] == f"submissions/{name}.py"


def test_a_gate_that_fails_without_a_failed_file_still_shows_an_error() -> None:
    for given in (report(), report(finding("gpu")), report(Finding(RIGHT, State.BROKEN, "oh"))):
        assert workflow_commands(given, same)[0].startswith("::error ")
    assert workflow_commands(report(finding("good")), same) == ()


def test_an_ambiguous_time_is_a_notice() -> None:
    judged = with_speed(finding("good"), speed(Pace.AMBIGUOUS), strict=False)
    (line,) = workflow_commands(report(judged), same)
    assert line.startswith("::notice ")


def many(count: int) -> GateReport:
    """Failures with long texts, and at the very end one submission that tried something."""
    long = [
        replace(finding("wrong"), message=f"wrong_answer: {number} " + "long " * 500)
        for number in range(count - 1)
    ]
    return report(*long, finding("good"), finding("sly"))


def test_at_most_ten_annotations_the_most_serious_first_and_the_last_is_the_total() -> None:
    lines = workflow_commands(many(500), same)
    assert len(lines) == 10
    assert "submissions/sly.py" in lines[0]
    level, _, message = undone(lines[-1])
    assert level == "error"
    assert message == "491 more submissions are not shown here: 1 verified, 500 failed"


def test_a_summary_stays_below_the_limit_and_counts_what_it_left_out() -> None:
    text = summary(many(500))
    assert len(text.encode()) < 1 << 20
    assert "submissions/sly.py" in text.split("\n| \u274c")[1]
    left_out = re.search(r"(\d+) more lines are left out here, the least serious", text)
    assert left_out is not None
    shown = text.count("\n| \u274c") + text.count("\n| \u2705")
    assert shown + int(left_out.group(1)) == 501
    assert text.rstrip().endswith("501 submissions, exit code 1.")
    assert summary(many(5), limit=100) == "", "too small for anything is nothing, not too much"
    short = summary(report(finding("good")))
    assert "left out" not in short
    assert len(summary(many(50), limit=65_000).encode()) < 65_000


def test_a_summary_shows_untrusted_text_as_text() -> None:
    message = "<script>alert(1)</script> @everyone `code` | [x](http://y) \n# title"
    evil = Finding(replace(RIGHT, path="a|b`c.py"), State.FAILED, message)
    (row,) = [line for line in summary(report(evil)).splitlines() if "alert" in line]
    assert re.search(r"``.*<script>.*``", row), "inside a code span"
    unescaped = re.findall(r"(?<!\\)\|", row)
    assert len(unescaped) == 5, "no cell but ours"


def test_a_summary_tells_the_times() -> None:
    judged = with_speed(finding("good"), speed(Pace.SLOWER), strict=False)
    text = summary(report(judged))
    assert "beside `main`, at most 1% slower:" in text
    assert "- 7168x16384x1: +3.00% (+2.00% to +4.00%), slower, 4 pairs" in text


# -- the environment of a job ---------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A step of a GitHub job, in a task's folder below the repository's top."""
    root = double_task(tmp_path / "checkout")
    monkeypatch.setattr(pool, "run_job", FakeJudge())
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(root.parent))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(root.parent / "summary.md"))
    monkeypatch.delenv("GITHUB_BASE_REF", raising=False)
    write(root, "good", "wrong")
    return root


def gate(*arguments: str) -> int:
    return cli.run(["gate", "--quiet", "submissions/good.py", "submissions/wrong.py", *arguments])


def test_github_is_found_by_its_environment(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate() == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    (annotation,) = map(undone, lines)
    assert annotation[1]["file"] == "double/submissions/wrong.py"
    assert annotation[1]["line"] == "4"
    assert "harness gate: not passed" in (job.parent / "summary.md").read_text()
    assert gate("--no-github") == 1
    assert "::error" not in capsys.readouterr().out


def test_without_a_summary_or_with_one_that_cannot_be_written_the_verdict_stands(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/proc/summary.md")
    assert gate() == 1
    assert "warning: GITHUB_STEP_SUMMARY /proc/summary.md: cannot" in capsys.readouterr().err
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    assert gate() == 1
    assert capsys.readouterr().err == ""


def test_a_summary_is_added_to_what_the_step_wrote_before(job: Path) -> None:
    path = job.parent / "summary.md"
    path.write_text("before\n" + "x" * ((1 << 20) - 2000))
    gate()
    assert path.read_text().startswith("before\n")
    assert path.stat().st_size < 1 << 20


def test_the_base_of_a_pull_request_is_what_changed_compares_with(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_BASE_REF", "trunk")
    os.system(f"git -C {job} init -q")
    assert cli.run(["gate", "--quiet", "--changed", "submissions/good.py"]) == 2
    assert "harness: origin/trunk: " in capsys.readouterr().err


def test_no_line_of_the_log_begins_with_a_file_name(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = job / "submissions" / "::stop-commands::x.py"
    path.write_text("def custom_kernel(data):\n    return data[0]\n")
    assert cli.run(["gate", "submissions/::stop-commands::x.py"]) == 0
    captured = capsys.readouterr()
    assert not any(line.startswith("::stop") for line in (captured.out + captured.err).splitlines())


EVIL = "x\n::error::spoof\r\n  ::set-output name=a::b\n##[add-mask]secret"


def test_no_line_of_an_error_can_be_read_as_a_command(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["gate", f"{EVIL}.py"]) == 2
    monkeypatch.setattr(pool, "run_job", _Broken())
    assert gate() == 3
    assert cli.run(["--debug", "gate", f"{EVIL}.py"]) == 2
    captured = capsys.readouterr()
    assert "Traceback" in captured.err and "spoof" in captured.err
    for line in (captured.out + captured.err).splitlines():
        # actions/runner, ActionCommand.cs: after leading space, or the old form anywhere
        assert not line.lstrip().startswith("::")
        assert "##[" not in line


class _Broken(FakeJudge):
    """A fault of ours, with somebody's words in it."""

    def __call__(self, job: Job, report: Callable[[Progress], None]) -> Run:
        raise ZeroDivisionError(EVIL)


def test_a_fault_of_the_harness_is_not_a_failed_submission(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pool, "run_job", _Broken())
    assert gate("--no-github") == 3
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "harness: a fault of the harness, please report it"
    assert lines[1] == "harness: Traceback (most recent call last):"


def test_json_on_github_holds_no_command(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = job / "submissions" / "##[add-mask]x.py"
    path.write_text("def custom_kernel(data):\n    return data[0]\n")
    assert cli.run(["gate", "--quiet", "--json", f"submissions/{path.name}"]) == 0
    out = capsys.readouterr().out
    assert "##[" not in out
    assert json.loads(out)["gate"]["submissions"][0]["path"] == f"submissions/{path.name}"


def test_verdicts_of_every_kind_have_a_severity() -> None:
    for verdict in Verdict:
        run = finding("wrong").run
        assert run is not None
        given = Finding(RIGHT, State.FAILED, "x", replace(run, verdict=verdict))
        assert workflow_commands(report(given), same)
