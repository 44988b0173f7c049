"""`harness selftest` and `harness profile`: what they say, and the exit code that follows."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import cli, pool
from harness.commands.selftest import CONTROLS
from harness.model import DeviceInfo, Failed, Job, Run, Verdict
from harness.profile_values import KernelLine, ProfileReport, ShapeProfile
from harness.render import text
from harness.render.reports import profile_view
from harness.selftest_values import SelfTestLine, SelfTestReport
from tests.fakes import CPU, H200, SHAPES, make_run
from tests.judging import SUBMISSIONS, small_task
from tests.test_terminal import draw

RIGHT = {name: sorted(verdicts)[0] for name, verdicts in CONTROLS.items()}


def line(name: str, ok: bool) -> SelfTestLine:
    return SelfTestLine(name, 1000.0, 1000.0 if ok else 900.0, 32.0, ok)


def selftest(
    monkeypatch: pytest.MonkeyPatch,
    lines: tuple[SelfTestLine, ...],
    verdicts: dict[str, Verdict],
    *arguments: str,
) -> int:
    """The command with a judge that finds just that."""

    def run_job(job: Job, report: Any) -> Run:
        return make_run(job.submission.name, verdict=verdicts[job.submission.name])

    clock = SelfTestReport(CPU, "sandbox", (("overhead_us", 289.7),), lines)
    monkeypatch.setattr(pool, "carry_out", lambda *_: clock)
    monkeypatch.setattr(pool, "run_job", run_job)
    return cli.run(["selftest", "--quiet", *arguments])


def test_a_machine_whose_clock_and_controls_hold_is_fit(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert selftest(monkeypatch, (line("spin", True),), RIGHT) == 0
    said = capfd.readouterr().out
    assert "FAILED" not in said
    assert "This machine's clock reads what is known." in said


def test_a_clock_that_is_off_or_cannot_be_read_forbids_to_rank(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert selftest(monkeypatch, (line("spin", True), line("read", False)), RIGHT) == 1
    assert "Do not rank here: off by more than allowed: read." in capfd.readouterr().out
    assert selftest(monkeypatch, (), RIGHT) == 1
    assert "the clock could not be read" in capfd.readouterr().out


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_that_is_judged_otherwise_fails_the_selftest(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    verdicts = RIGHT | {name: Verdict.TIMED_OUT}
    assert selftest(monkeypatch, (line("spin", True),), verdicts) == 1
    assert capfd.readouterr().out.count("FAILED") == 1
    assert selftest(monkeypatch, (line("spin", True),), verdicts, "--json") == 1
    document = json.loads(capfd.readouterr().out)
    assert document["ok"] is False and document["controls"][name] == "timed_out"


def profile(
    *,
    failed: Failed | None = None,
    kernels: int = 2,
    needed: int = 66_000_000,
    device: DeviceInfo = H200,
) -> ProfileReport:
    lines = tuple(KernelLine(f"[bold]k{i}[/]\x1b", i, 1.0, 1e4) for i in range(kernels))
    shape = ShapeProfile(SHAPES[0], 2.5e4, 2e4, lines, needed, 1.4e4, ("multi-stream",), None)
    return ProfileReport(device, (shape,), failed)


def test_a_profile_shows_kernels_bytes_and_names_as_they_are() -> None:
    drawn = draw(profile_view(profile(), text.marks("utf-8")), 200)
    assert "[bold]k0[/]\\x1b" in drawn and "\x1b" not in drawn
    assert "66.0 MB needed, 2.64 TB/s" in drawn
    assert "7168x16384x1  " in drawn and "multi-stream" in drawn
    assert "kernel " in drawn and "stream\n" in drawn and "operator" not in drawn


def test_a_profile_on_a_cpu_speaks_of_operators_and_of_no_stream_in_units_that_fit() -> None:
    drawn = draw(profile_view(profile(needed=18_944, device=CPU), text.marks("utf-8")), 200)
    assert "25.00 \u00b5s from first to last operator, 20.0% of it between operators" in drawn
    assert "18.9 kB needed, 758 MB/s" in drawn
    heading = drawn.splitlines()[1].split()
    assert heading == ["operator", "calls", "time", "of", "each", "share", "of", "all"]
    assert "kernel" not in drawn


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 B"), (999, "999 B"), (999.6, "1.00 kB"), (18_944, "18.9 kB"), (66e6, "66.0 MB"),
     (4.721e12, "4.72 TB"), (2.5e15, "2500 TB")],
)  # fmt: skip
def test_bytes_have_three_figures_in_the_unit_that_suits_them(value: float, shown: str) -> None:
    assert text.amount(value, "B") == shown


def test_a_profile_that_stopped_says_why() -> None:
    failed = Failed(Verdict.CRASHED, "the process ended (signal SIGSEGV)")
    drawn = draw(profile_view(profile(failed=failed), text.marks("ascii")), 100)
    assert "the process ended (signal SIGSEGV)" in drawn


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="harness-reports-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.timeout(300)
def test_a_profile_made_here_names_the_operators_and_leaves_a_trace(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = small_task(folder / "task", "double")
    file = SUBMISSIONS / "honest.py"
    assert (
        cli.run(["profile", str(file), "--quiet", "--device", "cpu", "--problem", str(root)]) == 0
    )
    said = capfd.readouterr().out
    assert "aten::mul" in said
    traces = sorted((root / "results/profiles/honest").glob("*.json"))
    assert len(traces) == 2
    assert all(json.loads(trace.read_text())["traceEvents"] for trace in traces)
