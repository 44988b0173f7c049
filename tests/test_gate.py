"""harness gate: what passes, what fails, and with which exit code and line."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from harness import bundle, cli, pool, slowdown
from harness.errors import UsageError
from harness.gate import (
    Finding,
    Gap,
    GateReport,
    State,
    conclude,
    control_finding,
    severity,
    with_speed,
)
from harness.gate_controls import right_control, smallest_shape, wrong_control
from harness.gatekeeper import Gatekeeper
from harness.model import Job, Mode, Run, Shape, Submission, Tolerance, Verdict
from harness.slowdown import OPEN, Pace, compare, decide
from harness.sources import read_submission
from harness.task import load
from tests.fakes import SHAPES, make_case, make_run, make_shape
from tests.gate_fakes import (
    DOUBLE,
    FakeJudge,
    gate,
    noisy,
    stand_in,
    timed,
    times,
    write,
)

Gate = Callable[..., int]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A task's folder to stand in, outside of any CI and with a cache of its own."""
    return stand_in(tmp_path, monkeypatch)


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> FakeJudge:
    fake = FakeJudge()
    monkeypatch.setattr(pool, "run_job", fake)
    return fake


def names(judge: FakeJudge) -> list[str]:
    return [job.submission.name for job in judge.seen]


# -- the table of cases: each its exit code and its line ------------------------------------------

TABLE = [
    ("good", 0, "1 verified (exit code 0)"),
    ("wrong", 1, "wrong_answer: 3 of 3 cases failed; 8 (competition): 7 of 8 elements are wrong"),
    (
        "crash",
        1,
        "crashed: 3 of 3 cases failed; 8 (competition): the process ended (exit code 0)",
    ),
    ("hang", 1, "timed_out: 3 of 3 cases failed; 8 (competition): no answer in 5 s"),
    ("syntax", 1, "compile_error: SyntaxError: oh"),
    ("gpu", 1, "unsupported: 3 of 3 cases failed; 8 (competition): Found no NVIDIA driver"),
    ("empty", 1, "3 of 3 cases are missing from its run, the first is 8 (competition)"),
    ("partial", 1, "1 of 3 cases are missing from its run, the first is 64 (signed)"),
    ("mixed", 1, "wrong_answer: 1000 (competition): 7 of 8 elements are wrong"),
    ("machine", 3, "cuda:0: the GPU fell off the bus; reboot"),
]


@pytest.mark.parametrize(("name", "code", "line"), TABLE)
def test_each_case_has_its_exit_code_and_line(
    name: str,
    code: int,
    line: str,
    root: Path,
    judge: FakeJudge,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(root, name)
    junit = root / "report.xml"
    assert gate(f"submissions/{name}.py", "--junit", junit) == code
    assert line in capsys.readouterr().out
    suites = ElementTree.parse(junit).getroot()
    failed = int(suites.attrib["failures"]) + int(suites.attrib["errors"])
    assert (failed > 0) == (code != 0), "the report alone must not look better than the gate"


def test_a_failure_is_told_once_for_all_its_cases(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "wrong")
    assert gate("submissions/wrong.py") == 1
    assert capsys.readouterr().out.count("7 of 8 elements are wrong") == 1  # of three cases


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["submissions/none*.py"], 2, "submissions/none*.py: no file matches"),
        (["submissions/missing.py"], 2, "submissions/missing.py: there is no such file"),
        (["submissions/zero.py"], 2, "submissions/zero.py: the file is empty"),
        (["submissions"], 2, "submissions: is a folder"),
        ([], 2, "Missing argument 'FILE...'"),
        (["submissions/good.py", "--baseline", "submissions/zero.py"], 2, "the file is empty"),
        (["submissions/good.py", "--baseline", "nothing-so-called"], 2, "not in a git repository"),
        (["submissions/good.py", "--changed", "HEAD"], 2, "not in a git repository"),
        (["submissions/good.py", "--junit", "/proc/no/x.xml"], 2, "--junit /proc/no/x.xml: cannot"),
        (["submissions/good.py", "--markdown", "/proc/x.md"], 2, "--markdown /proc/x.md: cannot"),
        (["submissions/good.py", "--allow-unverified", "all"], 2, "'all' is not one of"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error_before_anybody_is_judged(
    arguments: list[str],
    code: int,
    line: str,
    root: Path,
    judge: FakeJudge,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(root, "good")
    (root / "submissions" / "zero.py").touch()
    assert gate(*arguments) == code
    captured = capsys.readouterr()
    assert line in captured.err
    assert len(captured.err.splitlines()) <= 2
    assert names(judge) == []


# -- reports and what they must not touch ---------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        # What a shell makes of `--junit submissions/*.py`: the first is the report.
        ["--junit", "submissions/better.py", "submissions/good.py"],
        ["submissions/good.py", "--markdown", "submissions/good.py"],
        ["submissions/good.py", "--junit", "notes.py"],
        ["submissions/good.py", "--junit", "hard.xml"],
        ["submissions/good.py", "--junit", "soft.xml"],
        ["submissions/good.py", "--junit", "shapes.yaml"],
        ["submissions/good.py", "--junit", "task/report.xml"],
        ["submissions/good.py", "--junit", "reference/new/report.xml"],
        ["submissions/good.py", "--markdown", "controls/report.md"],
        ["submissions/good.py", "--baseline", "runs.json", "--junit", "runs.json"],
        ["submissions/good.py", "--junit", "new.xml", "--markdown", "./new.xml"],
    ],
)
def test_a_report_overwrites_nothing_that_the_gate_reads(
    arguments: list[str], root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "good", "better")
    (root / "runs.json").write_text("a bundle")
    (root / "hard.xml").hardlink_to(root / "submissions" / "good.py")
    (root / "soft.xml").symlink_to("submissions/better.py")
    before = contents(root)
    assert gate(*arguments) == 2
    assert "a report would overwrite what the gate reads" in capsys.readouterr().err
    assert contents(root) == before
    assert names(judge) == []


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_usage_error_leaves_an_earlier_report_alone_and_no_empty_one(
    root: Path, judge: FakeJudge
) -> None:
    write(root, "good")
    assert gate("submissions/good.py", "--junit", "old.xml") == 0
    earlier = (root / "old.xml").read_text()
    reports = ["--junit", "old.xml", "--markdown", "out/new.md"]
    assert gate("submissions/missing.py", *reports) == 2
    assert gate("submissions/good.py", "--baseline", "nothing.py", *reports) == 2
    # An empty control is found only after both were seen to be writable.
    (root / "controls" / "wrong.py").touch()
    assert gate("submissions/good.py", *reports) == 2
    assert (root / "old.xml").read_text() == earlier
    assert not (root / "out" / "new.md").exists()


def test_a_cache_that_is_a_file_is_a_usage_error(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "good")
    assert gate("submissions/good.py", "--cache", "shapes.yaml") == 2
    assert "--cache shapes.yaml: is not a folder" in capsys.readouterr().err


def test_each_output_is_tried_though_another_cannot_be_written(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "good")
    assert gate("submissions/good.py", "--junit", "/dev/full", "--markdown", "r.md") == 3
    captured = capsys.readouterr()
    assert "1 verified (exit code 0)" in captured.out
    assert "1 verified" in (root / "r.md").read_text()
    assert captured.err == (
        "harness: --junit /dev/full: cannot be written (No space left on device)\n"
    )


def test_reports_are_written_though_the_screen_is_full(root: Path) -> None:
    write(root, "good")
    code = (
        "import sys; from harness import cli, pool; from tests.gate_fakes import FakeJudge;"
        "pool.run_job = FakeJudge(); sys.argv[1:] = ['gate', *sys.argv[1:]]; cli.main()"
    )
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, "submissions/good.py", "--quiet", "--junit", "r.xml"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).resolve().parent.parent)},
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr == "harness: stdout: cannot be written (No space left on device)\n"
    assert ElementTree.parse(root / "r.xml").getroot().attrib["failures"] == "0"


@pytest.mark.parametrize("name", ["stop", "right"])
def test_ctrl_c_reports_what_was_found_and_the_rest_as_not_judged(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pool, "run_job", _Swapped({name: "stop"}))
    write(root, "good", "stop", "wrong")
    files = [f"submissions/{file}.py" for file in ("good", "stop", "wrong")]
    assert gate(*files, "--junit", "r.xml") == 130
    captured = capsys.readouterr()
    found = "1 verified, 2 not judged" if name == "stop" else "3 not judged"
    assert f"interrupted: {found} (exit code 130)" in captured.out
    assert "harness: interrupted" in captured.err
    errors = ElementTree.parse(root / "r.xml").getroot().attrib["errors"]
    assert errors == ("2" if name == "stop" else "3")


def test_ctrl_c_in_a_comparison_says_that_the_cases_were_passed(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pace(job: Job, shape: Shape) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(pool, "run_job", FakeJudge(pace))
    write(root, "good", "better")
    files = ["submissions/better.py", "submissions/good.py"]
    assert gate(*files, "--baseline", "submissions/good.py") == 130
    better, good = capsys.readouterr().out.split("submissions/good.py")
    assert "it passed every case; interrupted while its time was compared" in better
    assert "interrupted before it was judged to the end" in good


def test_a_signal_before_the_first_judgement_leaves_a_report_too(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM is a runner's way to stop a job."""
    write(root, "good")

    def interrupted(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Gatekeeper, "_kept", interrupted)
    assert gate("submissions/good.py", "--junit", "r.xml") == 130
    assert "interrupted: 1 not judged (exit code 130)" in capsys.readouterr().out
    assert ElementTree.parse(root / "r.xml").getroot().attrib["errors"] == "1"


def test_a_report_by_another_name_of_a_file_leaves_the_file_alone(
    root: Path, judge: FakeJudge
) -> None:
    write(root, "good", "wrong")
    assert gate("submissions/wrong.py", "--junit", "kept.xml") == 1
    (root / "r.xml").hardlink_to(root / "kept.xml")
    assert gate("submissions/good.py", "--junit", "r.xml") == 0
    failures = [
        ElementTree.parse(root / name).getroot().attrib["failures"]
        for name in ("kept.xml", "r.xml")
    ]
    assert failures == ["3", "0"]


# -- links and namesakes --------------------------------------------------------------------------


def test_a_submission_behind_a_link_is_refused(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "good")
    (root.parent / "secret.py").write_text("key = 1\n")
    (root / "submissions" / "spy.py").symlink_to("../../secret.py")
    (root / "submissions" / "twin.py").symlink_to("good.py")
    (root / "out").symlink_to("..")
    (root / "submissions" / "loop").symlink_to("loop")
    for given, said in {
        "submissions/spy.py": "submissions/spy.py: is a link",
        "submissions/twin.py": "submissions/twin.py: is a link",
        "submissions/*y.py": "submissions/spy.py: is a link",
        "out/secret.py": f"out/secret.py: lies behind {root / 'out'}, which is a link",
        "out/double/submissions/good.py": f"lies behind {root / 'out'}, which is a link",
        "submissions/loop/x.py": f"lies behind {root / 'submissions/loop'}, which is a link",
    }.items():
        assert gate(given) == 2
        captured = capsys.readouterr()
        assert f"{said}; the gate judges files: name what it points to" in captured.err
    assert names(judge) == []


def test_a_task_may_be_reached_through_a_link(root: Path, judge: FakeJudge) -> None:
    write(root, "good")
    (root.parent / "here").symlink_to(root)
    assert gate(root.parent / "here" / "submissions" / "good.py") == 0


def test_a_file_that_is_given_by_two_paths_is_judged_once(root: Path, judge: FakeJudge) -> None:
    write(root, "good")
    path = root / "submissions" / "good.py"
    assert gate("submissions/good.py", path, "submissions/../submissions/good.py") == 0
    assert names(judge) == ["right", "wrong", "good"]


def test_two_stars_in_quotes_mean_any_depth(root: Path, judge: FakeJudge) -> None:
    write(root, "good")
    deep = root / "submissions" / "a" / "b" / "deep.py"
    deep.parent.mkdir(parents=True)
    deep.write_text("# deep\n")
    assert gate("submissions/**/*.py") == 0
    assert names(judge)[2:] == ["deep", "good"]


# -- where verdicts are kept ----------------------------------------------------------------------


def test_a_read_only_cache_folder_is_a_warning_and_no_verdict(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "good", "better")
    assert gate("submissions/good.py", "submissions/better.py", "--cache", "/proc/verdicts") == 0
    assert capsys.readouterr().err.count("/proc/verdicts: verdicts cannot be kept") == 1


def test_the_worst_of_several_decides_and_all_are_judged(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "good", "machine", "wrong", "gpu")
    assert gate("submissions/*.py") == 3
    assert "1 verified, 1 failed, 1 not verified, 1 not judged" in capsys.readouterr().out
    assert set(names(judge)) == {"right", "wrong", "good", "machine", "gpu"}


def test_what_is_let_through_is_named_and_printed(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "good", "gpu", "mixed")
    assert gate("submissions/g*.py", "--allow-unverified", "unsupported") == 0
    out = capsys.readouterr().out
    assert "submissions/gpu.py  0 of 3 cases, let through" in out
    assert "1 let through" in out
    # A wrong answer beside an unsupported case is wrong all the same.
    assert gate("submissions/mixed.py", "--allow-unverified", "unsupported") == 1


def test_json_is_one_document_with_every_run(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "good", "wrong")
    assert gate("submissions/*.py", "--json", "--github") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    assert document["gate"]["exit_code"] == 1
    states = {s["name"]: s["state"] for s in document["gate"]["submissions"]}
    assert states == {"good": "verified", "wrong": "failed"}
    assert [run["verdict"] for run in document["runs"]] == ["passed", "wrong_answer"]


# -- controls -------------------------------------------------------------------------------------


def test_controls_are_judged_first(root: Path, judge: FakeJudge) -> None:
    write(root, "good")
    assert gate("submissions/good.py") == 0
    assert names(judge) == ["right", "wrong", "good"]
    assert judge.seen[0].shapes == judge.seen[1].shapes == (smallest_shape(load(root)),)


def test_a_gate_that_finds_its_right_control_wrong_judges_nobody(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = _Swapped({"right": "crash"})
    monkeypatch.setattr(pool, "run_job", broken)
    write(root, "good")
    assert gate("submissions/good.py", "--junit", "r.xml") == 3
    assert "the gate does not work here, nobody was judged: the right control got crashed" in (
        capsys.readouterr().out
    )
    assert names(broken) == ["right"]
    assert ElementTree.parse(root / "r.xml").getroot().attrib["errors"] == "1"


def test_a_gate_that_passes_its_wrong_control_judges_nobody(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blind = _Swapped({"wrong": "right"})
    monkeypatch.setattr(pool, "run_job", blind)
    write(root, "good")
    assert gate("submissions/good.py") == 3
    assert "the wrong control was not found wrong on 8 (competition)" in capsys.readouterr().out
    assert names(blind) == ["right", "wrong"]


@pytest.mark.parametrize("name", ["crash", "gpu", "syntax", "empty"])
def test_a_wrong_control_stopped_by_anything_but_its_numbers_proves_nothing(name: str) -> None:
    task = load(DOUBLE)
    right = right_control(DOUBLE)
    run = FakeJudge()(_job(replace(right, name=name)), lambda step: None)
    assert run.task == task.name
    assert not control_finding("wrong", run).ok


def test_a_task_without_a_right_control_cannot_be_gated(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "good")
    (root / "controls" / "right.py").unlink()
    assert gate("submissions/good.py") == 2
    assert "controls/right.py: there is no such file; the gate proves itself" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("kind", ["plain", "tuple", "dict", "empty shape"])
@pytest.mark.parametrize("value", [0.25, -7.0, 65504.0, float("inf"), float("nan")])
def test_the_derived_wrong_control_is_off_in_one_element(kind: str, value: float) -> None:
    import torch

    right = right_control(DOUBLE)
    wrong = wrong_control(load(DOUBLE), right)
    assert wrong.sha256 != right.sha256
    scope: dict[str, object] = {}
    exec(wrong.source, scope)  # our own text: the control and what is appended to it
    answer = torch.full(() if kind == "empty shape" else (3, 4), value)
    wrapped = {"tuple": ((answer, 1), 2), "dict": {"y": answer}}.get(kind, answer)
    scope["_right_kernel"] = lambda data: wrapped
    kernel = scope["custom_kernel"]
    assert callable(kernel)
    kernel(None)
    same = torch.eq(answer, value) | (torch.isnan(answer) & torch.isnan(torch.tensor(value)))
    assert int((~same).sum()) == 1


def test_a_task_may_bring_its_own_wrong_control(root: Path) -> None:
    (root / "controls" / "wrong.py").write_text("def custom_kernel(data):\n    return data[0]\n")
    assert wrong_control(load(root), right_control(root)).path.endswith("controls/wrong.py")


@pytest.mark.parametrize("was", [True, False])
def test_the_derived_wrong_control_turns_a_truth_around(was: bool) -> None:
    assert _spoiled(Tolerance(0.0, 0.0), was) is not was


@pytest.mark.parametrize("atol", [0.0, 0.5, 3.0, 100.0])
@pytest.mark.parametrize("rtol", [0.0, 1e-3, 0.1])
def test_the_derived_wrong_control_is_off_by_more_than_is_tolerated(
    rtol: float, atol: float
) -> None:
    for was in (0.0, 1.0, -1.0, 2.5, -7.0, 300.0, -65504.0):
        wrong = _spoiled(Tolerance(rtol, atol), was)
        # The right control may be off the other way by all that is tolerated.
        for expected in ((was - atol) / (1 + rtol), (was + atol) / (1 + rtol), was):
            assert abs(wrong - expected) > atol + rtol * abs(expected)


def _spoiled(tolerance: Tolerance, was: float) -> float:
    """What the derived control makes of an answer of one element."""
    import torch

    wrong = wrong_control(replace(load(DOUBLE), tolerance=tolerance), right_control(DOUBLE))
    scope: dict[str, Any] = {}
    exec(wrong.source, scope)
    scope["_right_kernel"] = lambda data: torch.tensor([was])
    return scope["custom_kernel"](None).item()  # type: ignore[no-any-return]


def test_a_wrong_control_that_passes_names_the_remedy(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pool, "run_job", _Swapped({"wrong": "right"}))
    write(root, "good")
    assert gate("submissions/good.py") == 3
    assert "; put one into controls/wrong.py whose numbers are wrong in every case" in (
        capsys.readouterr().out
    )


class _Swapped(FakeJudge):
    """Judges some submissions as if they had another name."""

    def __init__(self, other: dict[str, str]) -> None:
        super().__init__()
        self._other = other

    def __call__(self, job: Job, report: Callable[..., None]) -> Run:
        known = self._other.get(job.submission.name, job.submission.name)
        run = super().__call__(replace(job, submission=replace(job.submission, name=known)), report)
        self.seen[-1] = job
        return run


def _job(submission: Submission) -> Job:
    return Job(str(DOUBLE), submission, "cpu", Mode.TEST, shapes=(smallest_shape(load(DOUBLE)),))


# -- kept verdicts --------------------------------------------------------------------------------


def test_unchanged_submissions_are_not_judged_again(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "good", "gpu", "wrong")
    assert gate("submissions/*.py") == 1
    judge.seen.clear()
    assert gate("submissions/good.py", "submissions/gpu.py") == 1
    assert names(judge) == [], "a gate that judges nobody needs no controls"
    assert capsys.readouterr().out.count("kept verdict") == 2
    assert gate("submissions/wrong.py") == 1
    assert names(judge) == ["right", "wrong", "wrong"], "a failure is tried again"


def test_no_cache_judges_again_what_was_judged(root: Path, judge: FakeJudge) -> None:
    write(root, "good")
    gate("submissions/good.py")
    judge.seen.clear()
    assert gate("submissions/good.py", "--no-cache") == 0
    assert names(judge) == ["right", "wrong", "good"]


@pytest.mark.parametrize(
    "path",
    [
        "submissions/good.py",
        "task/__init__.py",
        "reference/__init__.py",
        "shapes.yaml",
        "controls/right.py",
    ],
)
def test_a_change_of_anything_that_decides_a_verdict_judges_again(
    path: str, root: Path, judge: FakeJudge
) -> None:
    write(root, "good")
    gate("submissions/good.py")
    judge.seen.clear()
    with (root / path).open("a") as file:
        file.write("\n# another line\n")
    assert gate("submissions/good.py") == 0
    assert "good" in names(judge)


def test_a_cached_gate_loads_neither_torch_nor_scipy(root: Path, judge: FakeJudge) -> None:
    write(root, "good")
    gate("submissions/good.py")
    code = (
        "import sys; from harness.cli import run; code = run(sys.argv[1:]);"
        "bad = {'torch', 'scipy', 'numpy'} & set(sys.modules); sys.exit(f'{bad}' if bad else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "gate", "submissions/good.py"],
        capture_output=True,
        text=True,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "XDG_CACHE_HOME": str(root.parent / "cache"),
            "PYTHONPATH": str(Path(cli.__file__).resolve().parent.parent),
        },
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "kept verdict" in done.stdout


# -- --changed ------------------------------------------------------------------------------------


@pytest.fixture
def history(root: Path) -> Path:
    """A repository with two committed submissions."""
    write(root, "good", "better")
    _git(root, "init", "-q", "-b", "main")
    _git(root, "add", "-A")
    _git(root, "commit", "-q", "-m", "begin")
    return root


def _git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def _said(folder: Path, *arguments: str) -> str:
    return subprocess.check_output(["git", *arguments], cwd=folder, text=True).strip()


def test_only_changed_submissions_are_judged(
    history: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    with (history / "submissions" / "good.py").open("a") as file:
        file.write("# edited\n")
    write(history, "new")
    assert gate("--changed", "HEAD", "submissions/*.py") == 0
    assert names(judge)[2:] == ["good", "new"]
    assert "2 verified, 1 unchanged and left out (exit code 0)" in capsys.readouterr().out


def test_changes_are_counted_from_where_the_branch_left(history: Path, judge: FakeJudge) -> None:
    _git(history, "checkout", "-q", "-b", "topic")
    write(history, "mine")
    _git(history, "add", "-A")
    _git(history, "commit", "-q", "-m", "mine")
    _git(history, "checkout", "-q", "main")
    (history / "submissions" / "good.py").write_text("# upstream\n")
    _git(history, "commit", "-q", "-a", "-m", "upstream")
    _git(history, "checkout", "-q", "topic")
    assert gate("--changed=main", "submissions/*.py") == 0
    assert names(judge)[2:] == ["mine"]


@pytest.mark.parametrize(
    "path", ["task/__init__.py", "reference/__init__.py", "shapes.yaml", "controls/right.py"]
)
def test_a_change_of_the_task_rejudges_all(path: str, history: Path, judge: FakeJudge) -> None:
    with (history / path).open("a") as file:
        file.write("\n# edited\n")
    assert gate("--changed", "HEAD", "submissions/*.py") == 0
    assert names(judge)[2:] == ["better", "good"]


def test_nothing_changed_is_not_a_success_unless_it_is_let_through(
    history: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    # Without REV, what follows is the first file.
    assert gate("--changed", "submissions/good.py") == 1
    assert "nothing was verified (1 unchanged and left out)" in capsys.readouterr().out
    assert gate("--changed", "submissions/good.py", "--allow-unverified", "unchanged") == 0
    assert "nothing was verified" in capsys.readouterr().out
    assert names(judge) == []


@pytest.mark.parametrize("revision", ["v9", "--upload-pack=x", "HEAD:submissions", ""])
def test_a_revision_that_is_none_is_said(
    revision: str, history: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    code = gate(f"--baseline={revision}", "submissions/good.py") if revision else 2
    if revision:
        assert "there is no such revision" in capsys.readouterr().err
    assert code == 2


def test_only_what_git_watches_can_be_unchanged(
    history: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    (history / ".gitignore").write_text("submissions/ignored.py\n")
    write(history, "ignored", "told")
    (history.parent / "outside.py").write_text("# outside\n")
    inner = history / "submissions" / "inner"
    for folder in (history / "submissions" / "nested", inner):
        folder.mkdir()
        (folder / f"{folder.name}.py").write_text("# of another repository\n")
        _git(folder, "init", "-q")
        _git(folder, "add", "-A")
        _git(folder, "commit", "-q", "-m", "inner")
    _git(history, "add", ".gitignore", "submissions/inner", "submissions/told.py")
    _git(history, "commit", "-q", "-m", "a submodule")
    _git(history, "update-index", "--assume-unchanged", "submissions/told.py")
    (history / "submissions" / "nested").rename(history / "submissions" / "told")  # untracked
    files = ["submissions/**/*.py", "../outside.py"]
    assert gate("--changed", "HEAD", *files) == 0
    assert sorted(names(judge)[2:]) == ["ignored", "inner", "nested", "outside", "told"]
    assert "2 unchanged and left out" in capsys.readouterr().out


def test_a_hook_of_the_checkout_that_says_nothing_changed_is_not_asked(
    history: Path, judge: FakeJudge
) -> None:
    hook = history / "quiet.sh"
    hook.write_text("#!/bin/sh\nprintf 'token\\0'\n")
    hook.chmod(0o755)
    _git(history, "config", "core.fsmonitor", str(hook))
    _git(history, "update-index", "--fsmonitor")
    _git(history, "status")
    with (history / "submissions" / "good.py").open("a") as file:
        file.write("# edited\n")
    assert gate("--changed", "HEAD", "submissions/good.py") == 0
    assert names(judge)[2:] == ["good"]


@pytest.mark.parametrize("edited", ["lib/table.py", "lib/more/deep.py", "data.bin", "kit/right.py"])
def test_a_change_behind_a_link_of_the_task_rejudges_all(
    edited: str, history: Path, judge: FakeJudge
) -> None:
    _linked_task(history)
    assert gate("--changed", "HEAD", "submissions/*.py") == 1
    assert names(judge) == []
    with (history / edited).open("a") as file:
        file.write("# edited\n")
    assert gate("--changed", "HEAD", "submissions/*.py") == 0
    assert names(judge)[2:] == ["better", "good"]


def test_a_file_that_is_gone_from_behind_a_link_rejudges_all(
    history: Path, judge: FakeJudge
) -> None:
    _linked_task(history)
    (history / "lib" / "more" / "deep.py").unlink()
    assert gate("--changed", "HEAD", "submissions/*.py") == 0
    assert names(judge)[2:] == ["better", "good"]


@pytest.mark.parametrize("kind", ["ignored", "outside"])
def test_a_part_of_the_task_that_git_does_not_watch_rejudges_all(
    kind: str, history: Path, judge: FakeJudge
) -> None:
    (history / ".gitignore").write_text("*.bin\n")
    path = history / "task" / ("table.bin" if kind == "ignored" else "table.py")
    if kind == "ignored":
        path.write_text("1")
    else:
        (history.parent / "table.py").write_text("1")
        path.symlink_to("../../table.py")
    _git(history, "add", "-A")
    _git(history, "commit", "-q", "-m", kind)
    assert gate("--changed", "HEAD", "submissions/*.py") == 0
    assert names(judge)[2:] == ["better", "good"]


def _linked_task(root: Path) -> None:
    """Commit a task of which parts lie behind links elsewhere in the repository."""
    (root / "lib" / "more").mkdir(parents=True)
    for name in ("lib/table.py", "lib/more/deep.py", "data.bin"):
        (root / name).write_text("# first\n")
    (root / "task" / "lib").symlink_to("../lib")
    (root / "reference" / "data.bin").symlink_to("../data.bin")
    (root / "controls").rename(root / "kit")
    (root / "controls").symlink_to("kit")
    _git(root, "add", "-A")
    _git(root, "commit", "-q", "-m", "links")


@pytest.mark.parametrize("how", ["commit -a", "commit PATH", "add", "linked worktree"])
def test_a_hook_sees_what_is_being_committed(
    how: str, history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The task is a subfolder: with GIT_DIR in the environment, git would take it for the top.
    top = tmp_path / "top"
    top.mkdir()
    _git(top, "init", "-q", "-b", "main")
    shutil.copytree(history, top / "double", ignore=shutil.ignore_patterns(".git"))
    _git(top, "add", "-A")
    _git(top, "commit", "-q", "-m", "begin")
    hook = top / ".git" / "hooks" / "pre-commit"
    code = (
        "from pathlib import Path; from harness.revision import repository;"
        "where = repository(Path('double')); commit = where.commit('HEAD');"
        "path = where.top / 'double' / 'submissions' / 'good.py';"
        "changed = [str(p.relative_to(where.top)) for p in where.changed_since(commit)];"
        f"print(changed, path in where.tracked(), where.read(commit, path) is not None,"
        f"file=open({str(tmp_path / 'said')!r}, 'w'))"
    )
    package = Path(cli.__file__).resolve().parent.parent
    hook.write_text(f'#!/bin/sh\nPYTHONPATH={package} exec {sys.executable} -c "{code}"\n')
    hook.chmod(0o755)
    tree = top
    if how == "linked worktree":
        tree = tmp_path / "linked"
        _git(top, "worktree", "add", "-q", str(tree), "-b", "topic")
    with (tree / "double" / "submissions" / "good.py").open("a") as file:
        file.write("# edited\n")
    if how == "add":
        _git(tree, "add", "-A")
    path = ["double/submissions/good.py"] if how == "commit PATH" else []
    _git(tree, "commit", "-q", "-m", "edit", *(["-a"] if how != "commit PATH" else path))
    assert (tmp_path / "said").read_text() == "['double/submissions/good.py'] True True\n"


def test_a_repository_without_a_commit_is_said_to_be_that(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "good")
    _git(root, "init", "-q")
    assert gate("--changed", "HEAD", "submissions/good.py") == 2
    assert f"HEAD: {root} is a repository without a commit yet" in capsys.readouterr().err


# -- speed ----------------------------------------------------------------------------------------


def test_a_slower_submission_fails_and_the_same_one_passes(
    history: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    judge.pace_ns = noisy({"better": 1.03})
    arguments = ["--baseline", "submissions/good.py", "--max-slowdown", "1"]
    assert gate("submissions/better.py", *arguments) == 1
    out = capsys.readouterr().out
    assert "slower than good.py on 2 of 2 shapes; worst " in out
    assert "(allowed: 1%)" in out
    assert gate("submissions/good.py", *arguments) == 0


def test_a_log_says_what_is_timed_in_a_line_for_each_run(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "good", "better")
    quiet, loud = noisy({}), noisy({}, sd=0.2)
    judge.pace_ns = lambda job, shape: (loud if str(shape) == "n=65536" else quiet)(job, shape)
    arguments = ["--baseline", "submissions/good.py", "--max-slowdown", "5"]
    cli.run(["gate", "submissions/better.py", *arguments])
    lines = [line for line in capsys.readouterr().err.splitlines() if "speed" in line]
    assert all(re.search(r", (600|59\d) s left$", line) for line in lines)
    some = ["", " on 1 of 2 shapes", " on 1 of 2 shapes"]
    pairs = [0, 0, 1, 2, 3]  # before each run of the four pairs of a look
    assert [line.rpartition(", ")[0] for line in lines] == [
        f"gate: better (1/1), speed of {side}{where}; {4 * look + done} of at most 12 pairs"
        for look, where in enumerate(some)
        for (side, _), done in zip(slowdown.GROUP, pairs, strict=True)
    ]


def test_a_comparison_that_its_budget_has_no_time_for_says_so(
    root: Path,
    judge: FakeJudge,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(root, "good", "better")
    judge.pace_ns = noisy({})
    monkeypatch.setattr(time, "monotonic_ns", itertools.count(0, 40_000_000_000).__next__)
    arguments = ["--baseline", "submissions/good.py", "--budget", "60"]
    cli.run(["gate", "submissions/better.py", *arguments])
    lines = [line for line in capsys.readouterr().err.splitlines() if "speed" in line]
    assert lines and lines[-1].endswith("of at most 12 pairs, over its --budget")


def test_other_failures_are_counted_and_not_repeated(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message tells of one; what else happened is said once, with how many cases it met."""
    write(root, "twice")
    assert gate("submissions/twice.py") == 1
    out = capsys.readouterr().out
    assert out.count("1 of 8 is NaN") == 1
    assert " and 1 more: 1 of 8 is NaN" in out


def test_both_sides_are_measured_in_turn_in_fresh_processes(root: Path, judge: FakeJudge) -> None:
    write(root, "good", "better")
    gate("submissions/better.py", "--baseline", "submissions/good.py", "--max-slowdown", "5")
    timed = [job for job in judge.seen if job.mode.value == "benchmark"]
    order = [job.submission.name for job in timed for _ in range(job.processes or 0)]
    assert order == ["good", "better", "better", "good"] * 2


def test_a_bundle_is_a_baseline_and_holds_what_may_not_be_missing(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    good, _ = (read_submission(path, None) for path in write(root, "good", "new"))
    job = Job(str(root), good, "cpu", Mode.BENCHMARK, processes=2)
    run = judge(job, lambda step: None)
    path = root / "runs.json"
    path.write_bytes(bundle.dumps(bundle.make([run], with_source=True)))
    assert gate("submissions/good.py", "--baseline", path) == 0
    assert gate("submissions/new.py", "--baseline", path) == 1
    assert "runs.json does not hold it" in capsys.readouterr().out
    swapped = replace(run, submission=replace(run.submission, source=run.submission.source + "#"))
    for other in (swapped, replace(run, verdict=Verdict.WRONG_ANSWER)):
        path.write_bytes(bundle.dumps(bundle.make([other], with_source=True)))
        assert gate("submissions/good.py", "--baseline", path) == 2
        assert "no run in it passed with the source" in capsys.readouterr().err
    # Three shapes in the baseline, two in the task now.
    extra = replace(run.cases[0], case=replace(run.cases[0].case, shape=Shape((("n", 3),))))
    wider = replace(run, cases=(*run.cases, extra))
    path.write_bytes(bundle.dumps(bundle.make([wider], with_source=True)))
    assert gate("submissions/good.py", "--baseline", path) == 1
    assert "runs.json ranks 1 shapes that are not measured now, first 3" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "runs.json: is empty or no file, so nothing could be compared with it"),
        (b"{}", "runs.json: is no bundle"),
        (bundle.dumps(bundle.make([], with_source=True)), "the bundle holds no run"),
        (
            bundle.dumps(bundle.make([make_run()], with_source=True)),
            "holds no source of a submission to double",
        ),
    ],
)
def test_a_bundle_that_can_be_no_baseline_is_a_usage_error(
    content: bytes,
    line: str,
    root: Path,
    judge: FakeJudge,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(root, "good")
    (root / "runs.json").write_bytes(content)
    assert gate("submissions/good.py", "--baseline", "runs.json") == 2
    assert line in capsys.readouterr().err
    assert names(judge) == []


def test_a_baseline_from_git_is_the_file_as_it_was(
    history: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    path = history / "submissions" / "good.py"
    path.write_text("# now slower\n" + path.read_text())
    judge.pace_ns = lambda job, shape: 1030.0 if "now slower" in job.submission.source else 1000.0
    assert gate("submissions/good.py", "--baseline", "HEAD", "--max-slowdown", "1") == 1
    assert "slower than HEAD on 2 of 2 shapes" in capsys.readouterr().out


def test_a_submission_that_the_baseline_lacks_is_not_verified(
    history: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(history, "new")
    assert gate("submissions/new.py", "--baseline", "HEAD") == 1
    assert "its speed could not be compared: HEAD does not hold it" in capsys.readouterr().out
    allow = ["--allow-unverified", "no-baseline"]
    assert gate("submissions/new.py", "--baseline", "HEAD", *allow) == 0
    assert "let through" in capsys.readouterr().out


def test_a_file_that_git_lists_and_cannot_read_is_a_fault_of_the_machine(
    history: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    blob = _said(history, "rev-parse", "HEAD:submissions/good.py")
    (history / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    allow = ["--allow-unverified", "no-baseline"]
    assert gate("submissions/good.py", "--baseline", "HEAD", *allow) == 3
    assert "submissions/good.py: is in that commit and git cannot read it" in (
        capsys.readouterr().err
    )
    assert names(judge) == []


def test_a_link_in_the_baseline_is_no_file_to_compare_with(
    history: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    path = history / "submissions" / "good.py"
    text = path.read_text()
    path.unlink()
    path.symlink_to("better.py")
    _git(history, "commit", "-q", "-a", "-m", "a link")
    path.unlink()
    path.write_text(text)
    assert gate("submissions/good.py", "--baseline", "HEAD") == 1
    assert "HEAD does not hold it" in capsys.readouterr().out


def test_a_revision_without_shapes_is_no_baseline(
    history: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    _git(history, "rm", "-q", "--cached", "shapes.yaml")
    _git(history, "commit", "-q", "-m", "no shapes")
    assert gate("submissions/good.py", "--baseline", "HEAD") == 1
    assert "HEAD has no shapes.yaml here, so what it ranked is not known" in capsys.readouterr().out
    assert gate("submissions/good.py", "--baseline", "HEAD~1") == 0


def test_a_baseline_that_is_no_submission_is_found_before_anybody_is_judged(
    history: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    path = history / "submissions" / "good.py"
    text = path.read_text()
    path.write_text("")
    _git(history, "commit", "-q", "-a", "-m", "empty")
    path.write_text(text)
    files = ["submissions/better.py", "submissions/good.py"]
    assert gate(*files, "--baseline", "HEAD", "--junit", "r.xml") == 2
    assert "the file is empty" in capsys.readouterr().err
    assert names(judge) == []
    assert not (history / "r.xml").exists()


def test_a_folder_with_the_name_of_a_branch_is_no_bundle(
    history: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    (history / "main").mkdir()
    assert gate("submissions/good.py", "--baseline", "main") == 0
    (history / "other").mkdir()
    assert gate("submissions/good.py", "--baseline", "other") == 2
    assert "other: there is no such revision" in capsys.readouterr().err


def test_a_bundle_ranks_what_the_newest_task_in_it_ranks(root: Path, judge: FakeJudge) -> None:
    (good,) = (read_submission(path, None) for path in write(root, "good"))
    new = judge(Job(str(root), good, "cpu", Mode.BENCHMARK, processes=2), lambda step: None)
    extra = replace(new.cases[0], case=replace(new.cases[0].case, shape=Shape((("n", 3),))))
    old = replace(
        new, id="0" * 12, cases=(extra,), task_digest="0" * 64, created_ns=new.created_ns - 1
    )
    path = root / "runs.json"
    path.write_bytes(bundle.dumps(bundle.make([new, old], with_source=True)))
    assert gate("submissions/good.py", "--baseline", path) == 0


def test_a_shape_that_is_no_longer_measured_fails(
    history: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (history / "shapes.yaml").read_text()
    (history / "shapes.yaml").write_text(text.replace("  - {n: 65536}\n", ""))
    assert gate("submissions/good.py", "--baseline", "HEAD") == 1
    assert "HEAD ranks 1 shapes that are not measured now, first 65536" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("side", "line"),
    [("better", "it has no time on 1 of 2 shapes"), ("good", "the baseline good.py has no time")],
)
def test_a_shape_without_a_time_fails(
    side: str, line: str, root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "good", "better")
    judge.pace_ns = lambda job, shape: (
        None if job.submission.name == side and str(shape) == "n=65536" else 1000.0
    )
    assert gate("submissions/better.py", "--baseline", "submissions/good.py") == 1
    assert line in capsys.readouterr().out


def test_a_submission_that_fails_while_it_is_timed_fails(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "good", "unsteady")
    assert gate("submissions/unsteady.py", "--baseline", "submissions/good.py") == 1
    assert "it could not be timed: crashed" in capsys.readouterr().out


def test_an_ambiguous_time_is_neutral_unless_strict(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "good", "better")
    judge.pace_ns = noisy({}, sd=0.2)
    arguments = ["--baseline", "submissions/good.py", "--max-slowdown", "1"]
    assert gate("submissions/better.py", *arguments, "--junit", "a.xml") == 0
    out = capsys.readouterr().out
    assert "could not tell from 12 pairs whether it is 1% slower than good.py on 2 of 2" in out
    assert "shapes (--strict fails it); first" in out, "a longer --budget would find no more"
    assert "1 verified, 1 of them with a time too close to call (exit code 0)" in out
    assert ElementTree.parse(root / "a.xml").getroot().attrib["failures"] == "0"
    assert gate("submissions/better.py", *arguments, "--strict", "--junit", "b.xml") == 1
    assert ElementTree.parse(root / "b.xml").getroot().attrib["failures"] == "2"


TIMED = make_run(shapes=SHAPES, times_us=(20.0, 40.0, 10.0))


def _compared(change: float, seed: int, *, sd: float, time_left: bool = True) -> slowdown.Speed:
    """What a comparison finds of a head that is `change` times as slow on every shape."""
    draw = times({"head": change}, sd=sd, seed=seed)

    def measure(side: str, processes: int, shapes: tuple[Shape, ...]) -> Run:
        drawn = {shape: [draw(side) for _ in range(processes)] for shape in shapes}
        return replace(TIMED, cases=tuple(make_case(s, timed(d)) for s, d in drawn.items()))

    return compare(measure, SHAPES, baseline="base", max_percent=1.0, time_left=lambda: time_left)


def _paces(speed: slowdown.Speed) -> list[Pace]:
    return [shape.pace for shape in speed.shapes]


def test_three_percent_is_found_where_one_is_allowed_and_the_same_raises_no_alarm() -> None:
    # 0.3% between processes is what a GPU shows; a hundred gates each way.
    found = [Pace.SLOWER in _paces(_compared(1.03, seed, sd=0.003)) for seed in range(100)]
    alarms = [Pace.SLOWER in _paces(_compared(1.00, seed, sd=0.003)) for seed in range(100)]
    assert sum(found) == 100
    assert sum(alarms) == 0


def test_exactly_as_slow_as_allowed_raises_at_most_one_alarm_in_twenty() -> None:
    alarms = [Pace.SLOWER in _paces(_compared(1.01, seed, sd=0.003)) for seed in range(400)]
    assert sum(alarms) <= 30  # 5% of 400 is 20; 30 is passed once in a hundred by chance


def test_more_pairs_are_taken_only_while_it_is_ambiguous_and_time_is_left() -> None:
    clear = _compared(1.0, 1, sd=0.0005)
    assert {shape.pairs for shape in clear.shapes} == {4}
    unclear = _compared(1.0, 2, sd=0.2)
    assert {shape.pairs for shape in unclear.shapes} == {4 * slowdown.LOOKS}
    assert set(_paces(unclear)) == {Pace.AMBIGUOUS}


def test_only_what_is_ambiguous_is_timed_on_and_one_slower_shape_is_enough() -> None:
    first, second, third = SHAPES
    asked: list[tuple[Shape, ...]] = []

    def found(slow: float) -> slowdown.Speed:
        """The first shape is quiet and `slow` times as slow, the second noisy, the third quiet."""
        rng = random.Random(5)
        asked.clear()

        def measure(side: str, processes: int, shapes: tuple[Shape, ...]) -> Run:
            asked.append(shapes)
            sds = {first: 0.0005, second: 0.1, third: 0.0005}
            head = slow if side == "head" else 1.0
            drawn = {
                shape: [
                    20.0 * (head if shape == first else 1) * math.exp(rng.gauss(0, sds[shape]))
                    for _ in range(processes)
                ]
                for shape in shapes
            }
            return replace(TIMED, cases=tuple(make_case(s, timed(d)) for s, d in drawn.items()))

        return compare(measure, SHAPES, baseline="b", max_percent=1, time_left=lambda: True)

    same, count = found(1.0), len(slowdown.GROUP)
    assert _paces(same) == [Pace.OK, Pace.AMBIGUOUS, Pace.OK]
    assert [shape.pairs for shape in same.shapes] == [4, 4 * slowdown.LOOKS, 4]
    assert asked == [SHAPES] * count + [(second,)] * (count * (slowdown.LOOKS - 1))
    slower = found(1.03)
    assert _paces(slower) == [Pace.SLOWER, Pace.AMBIGUOUS, Pace.OK]
    assert asked == [SHAPES] * count


def test_without_time_two_pairs_are_still_taken() -> None:
    speed = _compared(1.0, 1, sd=0.2, time_left=False)
    assert {shape.pairs for shape in speed.shapes} == {slowdown.LEAST_PAIRS}
    assert set(_paces(speed)) == {Pace.AMBIGUOUS}
    judged = with_speed(Finding(right_control(DOUBLE), State.VERIFIED), speed, strict=False)
    assert "from 2 pairs whether it is 1% slower than base on 3 of 3 shapes (--budget gives" in (
        judged.message
    )
    assert Pace.SLOWER in _paces(_compared(5.0, 1, sd=0.003, time_left=False))


def test_time_that_runs_out_within_a_group_ends_it_there() -> None:
    asked: list[str] = []

    def measure(side: str, processes: int, shapes: tuple[Shape, ...]) -> Run:
        asked.append(side)
        cases = tuple(make_case(s, timed([20.0] * processes)) for s in shapes)
        return replace(TIMED, cases=cases)

    compare(measure, SHAPES, baseline="b", max_percent=1, time_left=lambda: len(asked) < 4)
    assert asked == ["base", "head", "base", "head"]


def test_as_many_times_as_processes_must_be_there() -> None:
    def measure(side: str, processes: int, shapes: tuple[Shape, ...]) -> Run:
        return replace(TIMED, cases=tuple(make_case(s, timed([20.0])) for s in SHAPES))

    speed = compare(measure, SHAPES, baseline="b", max_percent=1, time_left=lambda: True)
    assert speed.message == f"it has no time on 3 of 3 shapes: {SHAPES[0].label}"


def test_decisions_are_those_computed_by_hand() -> None:
    # Mean 0.03, sd 0.0011547: t against 1% is (0.03 - 0.0099503) / 0.00057735 = 34.727; beyond it
    # Student's distribution of 3 degrees of freedom has 2.6251e-5; three looks.
    ratios = [0.029, 0.031, 0.029, 0.031]
    (found,) = decide({SHAPES[0]: ratios}, 1.0)
    assert found.pace is Pace.SLOWER
    assert found.p == pytest.approx(3 * 2.6251e-5, rel=1e-3)
    (same,) = decide({SHAPES[0]: [-r for r in ratios]}, 1.0)
    assert (same.pace, same.p) == (Pace.OK, 1.0)
    (level,) = decide({SHAPES[0]: [0.0, 0.0]}, 0.0)
    assert level.pace is Pace.OK
    with pytest.raises(ValueError, match="two pairs"):
        decide({SHAPES[0]: [0.01]}, 1.0)


def test_the_interval_that_is_shown_is_the_one_that_decides() -> None:
    # A head that is ten times slower in every third process.  Of one shape at one look, 95% are
    # from +10% to +350%, above the 2% allowed, and that alone would fail 9% of equals.
    erratic = [math.log(10)] * 4 + [0.05] * 8
    found = decide({shape: erratic for shape in SHAPES}, 2.0)
    assert set(_paces(slowdown.Speed("b", 2.0, found))) == {Pace.AMBIGUOUS}
    assert all(shape.low < 1.02 < shape.high for shape in found)
    rng = random.Random(11)
    seen = set()
    for _ in range(300):
        drawn = {
            shape: [rng.gauss(rng.choice((0.01, 0.02, 0.03)), 0.005) for _ in range(4)]
            for shape in SHAPES
        }
        for shape in decide(drawn, 2.0):
            above, below = shape.low > 1.02, shape.high <= 1.02
            seen.add(shape.pace)
            assert (shape.pace is Pace.SLOWER) is above
            assert (shape.p < slowdown.ALPHA) is above
            assert (shape.pace is Pace.OK) is below
    assert seen == set(Pace)


def test_intervals_are_those_computed_by_hand() -> None:
    # Mean 0.03, error 0.00057735.  Student's t of 3 degrees of freedom is 3.7405 beyond which lie
    # 5% / 3 looks, and 5.6251 for 5% / (3 looks * 3 shapes).
    ratios = [0.029, 0.031, 0.029, 0.031]
    for shape in decide({shape: ratios for shape in SHAPES}, 1.0):
        assert math.log(shape.low) == pytest.approx(0.03 - 5.6251 * 0.00057735, rel=1e-4)
        assert math.log(shape.high) == pytest.approx(0.03 + 3.7405 * 0.00057735, rel=1e-4)


def test_an_end_of_many_digits_is_shown_in_few() -> None:
    (found,) = decide({SHAPES[0]: [0.0, 1.5]}, 1.0)
    assert found.percent == "+111.70% (2 pairs this far apart give no interval)"


def test_a_shape_that_fails_by_an_open_interval_is_shown_with_the_end_that_decided() -> None:
    (found,) = decide({SHAPES[0]: [math.log(8), math.log(9.5)]}, 1.0)
    assert found.pace is Pace.SLOWER
    assert found.high > found.ratio * OPEN
    assert found.percent == "+771.78% (at least +69.18%)"


def test_correction_keeps_one_lucky_shape_of_many_from_failing() -> None:
    noise = {make_shape(128, 256, i): [0.0, 0.02, 0.0, 0.03] for i in range(1, 11)}
    one = {SHAPES[0]: [0.020, 0.024, 0.021, 0.025]}
    alone, together = decide(one, 1.0)[0], decide(one | noise, 1.0)[0]
    assert alone.pace is Pace.SLOWER
    assert together.p == pytest.approx(11 * alone.p)


# -- pure conclusions -----------------------------------------------------------------------------


def test_no_findings_is_never_a_success() -> None:
    assert GateReport("double", "cpu", ()).exit_code == 1
    assert GateReport("double", "cpu", (), allowed=(Gap.UNCHANGED,)).exit_code == 1


def test_a_task_without_test_cases_verifies_nothing() -> None:
    right = right_control(DOUBLE)
    run = FakeJudge()(_job(right), lambda step: None)
    assert conclude(right, replace(run, cases=()), ()).state is State.UNVERIFIED


def test_what_somebody_tried_is_reported_before_what_merely_fails() -> None:
    right = right_control(DOUBLE)
    order = []
    for name in ("good", "gpu", "wrong", "sly"):
        run = FakeJudge()(_job(replace(right, name=name)), lambda step: None)
        order.append(conclude(replace(right, name=name), run, [r.case for r in run.cases]))
    order.sort(key=severity)
    assert [finding.submission.name for finding in order] == ["sly", "wrong", "gpu", "good"]


def test_a_repeated_row_counts_twice() -> None:
    right = right_control(DOUBLE)
    run = FakeJudge()(_job(right), lambda step: None)
    case = run.cases[0].case
    found = conclude(right, replace(run, cases=run.cases[:1]), [case, case])
    assert found.missing == (case,)


def test_right_control_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="put one there"):
        right_control(tmp_path)


def test_the_smallest_shape_is_the_cheapest_control() -> None:
    assert smallest_shape(load(DOUBLE)) == Shape((("n", 8),))


# -- the real judge -------------------------------------------------------------------------------


def test_the_real_judge_is_what_the_gate_asks(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Every kind of failure before the real judge: tests/test_judge.py.
    text = (root / "shapes.yaml").read_text().replace("[competition, signed]", "[competition]")
    (root / "shapes.yaml").write_text(text)
    write(root, "good", "off")
    path = root / "submissions" / "off.py"
    path.write_text("def custom_kernel(data):\n    y = data[0] * 2\n    y[3] += 1\n    return y\n")
    assert gate("submissions/*.py", "--device", "cpu", "--json") == 1
    found = json.loads(capsys.readouterr().out)["gate"]
    assert [control["ok"] for control in found["controls"]] == [True, True]
    assert [s["state"] for s in found["submissions"]] == ["verified", "failed"]
    assert "1 of 8 elements are wrong" in found["submissions"][1]["message"]
