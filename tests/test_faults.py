"""Faults that users of such tools reported, tried on this one: each test names the fault's number.

What a whole run is needed for is judged once, in `benchmark` mode or side by side.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from harness import check, faults, lint, stats
from harness.device_lock import hold
from harness.devices.collect import leaves
from harness.errors import UsageError
from harness.exchange import describe
from harness.model import Mode, Passed, Tolerance
from harness.progress import Progress
from harness.render.progress import live_progress
from harness.sources import MAX_SOURCE_BYTES, read_submission
from harness.window import Frame, Prepared
from reference import exact
from task import FAMILIES, generate_input
from tests.judging import SUBMISSIONS, Judged, judge, small_task

RIGHT = b"def custom_kernel(data):\n    return data[0] * 2\n"

# ---- whole runs ----


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    # Not pytest's own, which is closed to other users; a worker may be one.
    path = Path(tempfile.mkdtemp(prefix="harness-faults-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


TIMED = (
    "caches_by_content_sample", "patches_clocks", "slow_first_call", "wrong_after_six_calls",
    "wrong_on_large_shapes",
)  # fmt: skip


@pytest.fixture(scope="module")
def timed(folder: Path) -> dict[str, Judged]:
    """Submissions whose fault shows only when they are timed."""
    root = small_task(folder / "timed", "double")
    files = [SUBMISSIONS / f"{name}.py" for name in TIMED]
    return {found.name: found for found in judge(root, Mode.BENCHMARK, files)}


@pytest.mark.timeout(300)
class TestTimed:
    @pytest.mark.parametrize("name", ["caches_by_content_sample", "patches_clocks"])
    def test_b01_b10_neither_kept_answers_nor_patched_clocks_make_it_faster(
        self, timed: dict[str, Judged], name: str
    ) -> None:
        assert timed[name].verdict == "passed"
        assert min(timed[name].times_ns) >= 20e6

    def test_b41_a_wrong_output_in_the_middle_is_found_and_its_call_named(
        self, timed: dict[str, Judged]
    ) -> None:
        found = timed["wrong_after_six_calls"]
        assert found.verdict == "wrong_answer"
        assert "call " in found.message

    def test_b46_the_timed_shapes_are_checked_too(self, timed: dict[str, Judged]) -> None:
        assert timed["wrong_on_large_shapes"].verdict == "wrong_answer"
        assert "; 65536 (" in timed["wrong_on_large_shapes"].message

    def test_b55_a_slow_first_call_is_neither_fatal_nor_in_the_score(
        self, timed: dict[str, Judged]
    ) -> None:
        assert timed["slow_first_call"].verdict == "passed"
        assert max(timed["slow_first_call"].times_ns) < 0.5e9

    @pytest.mark.parametrize("name", TIMED)
    def test_nothing_is_left(self, timed: dict[str, Judged], name: str) -> None:
        assert timed[name].left == ()


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here to build C++ with")
@pytest.mark.timeout(300)
def test_b12_b62_two_extensions_of_one_name_built_at_once_do_not_meet(folder: Path) -> None:
    root = small_task(folder / "builds", "double")
    files = [SUBMISSIONS / f"builds_times_{n}.py" for n in (2, 3)]
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda f: next(iter(list(judge(root, Mode.TEST, [f])))), files))
    assert [f.verdict for f in found] == ["passed", "wrong_answer"], found


@pytest.mark.timeout(300)
def test_b69_what_python_runs_the_judge_runs_whatever_its_encoding(folder: Path) -> None:
    root = small_task(folder / "encodings", "double")
    sources = {
        "bom": b"\xef\xbb\xbf" + RIGHT,
        "crlf": RIGHT.replace(b"\n", b"\r\n"),
        "latin": b"# -*- coding: latin-1 -*-\nname = '\xe9t\xe9'\nassert len(name) == 3\n" + RIGHT,
    }
    files = []
    for name, source in sources.items():
        files.append(folder / f"{name}.py")
        files[-1].write_bytes(source)
    assert [(f.verdict, f.message) for f in judge(root, Mode.TEST, files)] == [("passed", "")] * 3


# ---- reading submissions ----


def test_b69_the_author_is_found_behind_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "s.py"
    file.write_bytes(b"\xef\xbb\xbf#!HARNESS author Ada\n" + RIGHT)
    assert read_submission(file, None).author == "Ada"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "above",
    [
        b"a" + b" " * 200_000 + b"$\n",  # Python's tokenizer alone took minutes for a tenth of it
        b"$ " * 2000 + b"\n",
        b"'''\n" + b"x\n" * 500_000,
        b"#!HARNESS author " + b"b" + b" " * 500_000 + b"x\n",
    ],
    ids=["blanks", "errors", "open text", "long author"],
)
def test_a_file_that_cannot_be_read_on_has_no_author_and_takes_no_time(
    tmp_path: Path, above: bytes
) -> None:
    file = tmp_path / "slow.py"
    file.write_bytes(above + b"#!HARNESS author Ada\n" + RIGHT)
    assert read_submission(file, None).author == "anonymous"


def test_an_encoding_that_takes_the_square_of_the_length_is_none(tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_bytes(b"# -*- coding: punycode -*-\n" + RIGHT)
    with pytest.raises(UsageError, match="punycode is no encoding for text"):
        read_submission(file, None)


def test_the_name_that_starting_points_leave_open_is_no_author(tmp_path: Path) -> None:
    file = tmp_path / "s.py"
    file.write_bytes(b"#!HARNESS author your-name\n" + RIGHT)
    assert read_submission(file, None).author == "anonymous"


@pytest.mark.parametrize(
    "line",
    ["#!HARNESS autor Ada", "#!harness author Ada", "# !HARNESS author Ada", "#!HARNESS author"],
)
def test_an_author_whose_line_is_misspelt_does_not_run_as_nobody(tmp_path: Path, line: str) -> None:
    file = tmp_path / "foo.py"
    file.write_bytes(f"# a kernel\n{line}\n".encode() + RIGHT)
    with pytest.raises(UsageError, match="foo.py:2: .* author NAME"):
        read_submission(file, None)
    file.write_bytes(b"# harness-free, the #!HARNESS line is for others\n" + RIGHT)
    assert read_submission(file, None).author == "anonymous"
    assert read_submission(file, "Ada").author == "Ada"


@pytest.mark.parametrize("above", ['"""A kernel."""\n\n', "import torch\n", "\n", "# a kernel\n"])
def test_an_author_is_found_below_a_docstring_or_an_import(tmp_path: Path, above: str) -> None:
    file = tmp_path / "s.py"
    file.write_bytes(f"{above}#!HARNESS author Ada\n#!HARNESS author Bob\n".encode() + RIGHT)
    assert read_submission(file, None).author == "Ada"
    # What is not exactly such a line may be a text: only at the top is it taken for a mistake.
    for other in (" #!HARNESS author Ada", "#!harness author Ada", 'x = "#!HARNESS author Ada"'):
        file.write_bytes(f"import torch\n{other}\n".encode() + RIGHT)
        assert read_submission(file, None).author == "anonymous"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    "quoted",
    ['source = """\n#!HARNESS author Eve\n"""', 'x = "a\u2028#!HARNESS author Eve"'],
    ids=["a kernel", "a line separator"],
)
def test_an_author_whom_a_text_names_is_not_the_files(
    tmp_path: Path, quoted: str, end: str
) -> None:
    file = tmp_path / "s.py"
    for below, author in (("#!HARNESS author Ada\n", "Ada"), ("", "anonymous")):
        file.write_bytes(f"{quoted}\n{below}".replace("\n", end).encode() + RIGHT)
        assert read_submission(file, None).author == author


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: p.write_bytes(b"x = 1\0\n"), "NUL"),
        (lambda p: p.write_bytes(b""), "empty"),
        (lambda p: p.write_bytes(b"#" * (MAX_SOURCE_BYTES + 1)), "larger than 1 MiB"),
        (lambda p: p.write_bytes(b"\xff\xfe = 1\n"), "not Python source"),
        (lambda p: p.write_bytes(b"# coding: no-such\n"), "not Python source"),
        (lambda p: p.mkdir(), "folder"),
        (_fifo, "not a regular file"),
        (lambda p: None, "no such file"),
    ],
)
def test_b69_what_cannot_be_a_submission_is_refused_at_once_and_by_name(
    tmp_path: Path, make: Callable[[Path], Any], said: str
) -> None:
    file = tmp_path / "s.py"
    make(file)
    begin = time.monotonic()
    with pytest.raises(UsageError, match=said) as error:
        read_submission(file, None)
    assert time.monotonic() - begin < 1
    assert str(file) in str(error.value)


def test_b69_a_link_to_what_is_no_python_is_judged_as_what_it_holds(tmp_path: Path) -> None:
    _link(tmp_path / "s.py")
    # It is read, as any text file is; a file without .py is not even that.
    assert read_submission(tmp_path / "s.py", None).source.startswith("root:")
    (tmp_path / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="NAME.py"):
        read_submission(tmp_path / "passwd", None)


# ---- what a submission returns ----


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t,
        lambda t: (t,),
        lambda t: (t, t, t),
        lambda t: [t, t],
        lambda t: {"a": t, "b": t},
        lambda t: None,
        lambda t: (x for x in (t, t)),
        lambda t: (t, (t,)),
        lambda t: (t, None),
    ],
)
def test_b42_several_outputs_come_in_the_structure_of_the_reference_or_not_at_all(
    make: Callable[[torch.Tensor], Any],
) -> None:
    tensor = torch.zeros(2)
    tree, _ = describe((tensor, tensor))
    with pytest.raises(faults.Refused, match="expected"):
        leaves(make(tensor), tree)
    assert len(leaves((tensor, tensor), tree)) == 2


@pytest.mark.parametrize("inputs", [f for f in FAMILIES if f != "zeros"])
def test_b08_no_trivial_answer_passes_the_shipped_task(inputs: str) -> None:
    truth = exact(generate_input(128, 512, 2, 1111, inputs=inputs))
    expected, tolerance = truth.expected, Tolerance(rtol=1e-3, atol=1e-3)
    finite = expected[expected.isfinite()].double()
    middle = float(finite.mean()) if finite.numel() else 0.0
    for answer in (0.0, 1.0, middle, float("nan")):
        got = torch.full_like(expected, answer)
        found = check.examine(got, expected, terms=None, tolerance=tolerance, slack=None)
        assert not isinstance(found, Passed), f"{answer} passes {inputs}"


def test_b08_a_task_whose_data_let_a_constant_pass_is_told_so() -> None:
    softmax = torch.softmax(torch.linspace(0, 1, 100_000), 0)
    assert lint.trivial_answer(prepared(softmax), Tolerance(rtol=0, atol=1e-2)) == "zeros"
    steady = torch.full((100,), 5.0) + torch.linspace(0, 1e-3, 100)
    answer = lint.trivial_answer(prepared(steady), Tolerance(rtol=0, atol=1e-2))
    assert answer == "the mean of what is expected"
    for fit in (steady, torch.arange(7), torch.ones(3, dtype=torch.uint8), torch.ones(3) > 0):
        assert lint.trivial_answer(prepared(fit), Tolerance(rtol=0, atol=1e-5)) is None
    float8 = torch.ones(5).to(torch.float8_e4m3fn)
    assert lint.trivial_answer(prepared(float8), Tolerance(rtol=0, atol=1e-5)) is None


def prepared(expected: torch.Tensor) -> Prepared:
    frame = Frame({}, (), {}, (), ())
    return Prepared(
        frame=frame, data=(), tensors=(), expected=(expected,), terms=None, exact=None, slack=None
    )


# ---- errors, words, screens ----


def test_b61_a_long_error_keeps_its_beginning_and_its_reason() -> None:
    text = "x" * 20_000 + "\n" + "short\n" * 100_000 + "fatal: the reason"
    found = faults.explain(RuntimeError(text), "call", faults.Paths("", ""))
    assert len(found["message"]) < 1000
    assert found["message"].startswith("RuntimeError: xxxx")
    assert "fatal: the reason" in found["message"]
    assert "characters ..." in found["message"]


@pytest.mark.parametrize(
    "text",
    [
        "Torch not compiled with CUDA enabled",
        "Found no NVIDIA driver on your system",
        "0 active drivers ([]). There should only be one.",
        "CUDA error: no kernel image is available for execution on the device",
        "mine needs a CUDA device (compute capability 8.0 or later)",
    ],
)
def test_b62_b63_what_the_machine_lacks_is_not_the_authors_fault(text: str) -> None:
    for stage in ("import", "call"):
        found = faults.explain(RuntimeError(text), stage, faults.Paths("", ""))
        assert found["verdict"] == "unsupported"


def test_b15_text_that_cannot_be_encoded_is_escaped() -> None:
    found = faults.explain(ValueError("\udc80 \x00"), "call", faults.Paths("", ""))
    found["message"].encode("utf-8")


@pytest.mark.parametrize(
    "environment",
    [{}, {"NO_COLOR": "1"}, {"NO_COLOR": ""}, {"FORCE_COLOR": "0"}, {"CI": "true"},
     {"TERM": "dumb"}],
)  # fmt: skip
def test_b68_progress_in_a_log_is_plain_lines(environment: dict[str, str]) -> None:
    stream = io.StringIO()
    with live_progress(stream, environment, "[bold]x[/]", quiet=False) as report:
        for done in range(3):
            report(Progress("checking", "128x256x1", done, 3))
        report(Progress("timing", "7168x16384x1", 1, 30, latest_ns=5))
    assert "\x1b" not in stream.getvalue() and "\r" not in stream.getvalue()
    assert stream.getvalue().count("[bold]x[/]: checking") == 1
    assert "timing 7168x16384x1" in stream.getvalue()


def test_one_of_many_runs_is_one_line_of_a_log() -> None:
    stream = io.StringIO()
    with live_progress(stream, {}, "A fast (1/12)", quiet=False, brief=True) as report:
        report(Progress("checking", "128x256x1", 1, 3))
        report(Progress("timing", "7168x16384x1", 1, 30, latest_ns=5))
    assert stream.getvalue() == "A fast (1/12)\n"


class Screen(io.StringIO):
    """A stream that takes itself for a terminal."""

    def isatty(self) -> bool:
        return True


def test_b17_progress_on_a_terminal_shows_names_as_they_are_and_leaves_nothing_behind() -> None:
    stream = Screen()
    with live_progress(stream, {"TERM": "xterm", "COLUMNS": "120"}, "[red]x[/]", quiet=False) as r:
        r(Progress("checking", "128x256x1 normal", 1, 3))
        r(Progress("timing", "1x2", 4, 30, process=2, processes=5, latest_ns=12_300, left_ns=10**9))
    drawn = stream.getvalue()
    assert "[red]x[/]" in drawn
    assert "4/30, process 2/5, 12.30 us, 1 s left" in drawn.replace("\u00b5", "u")
    assert drawn.endswith("\x1b[2K")  # the line is erased


def test_no_progress_is_shown_when_nobody_wants_it() -> None:
    stream = Screen()
    with live_progress(stream, {}, "x", quiet=True) as report:
        report(Progress("checking"))
    assert stream.getvalue() == ""


def test_b54_statistics_of_one_and_of_equal_samples_are_defined() -> None:
    assert stats.sample_std([1.0]) is None
    assert stats.sample_std([1.0, 3.0]) == pytest.approx(2**0.5)
    assert stats.sample_std([1.0, 1.0, 1.0]) == 0


# ---- two runs on one device ----

_HOLDER = """
import sys, time
from harness.device_lock import hold
with hold("cuda:7", waiting=lambda: print("waiting", flush=True)):
    print("held", flush=True)
    time.sleep(60)
"""


def _holder(temporary: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _HOLDER],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_b36_a_second_run_waits_says_so_and_goes_on_when_the_first_is_killed(
    tmp_path: Path,
) -> None:
    with _holder(tmp_path) as first:
        assert _line(first) == "held"
        with _holder(tmp_path) as second:
            assert _line(second) == "waiting"
            first.send_signal(signal.SIGKILL)
            assert _line(second) == "held"
            second.kill()


def test_b36_the_lock_is_free_again_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    waits: list[str] = []
    for _ in range(2):
        with hold("cuda:7", waiting=lambda: waits.append("waited")):
            pass
    assert waits == []
