"""What people see: complete, in any width, encoding and colour setting, whatever the text says."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import RenderableType

from harness import cli, leaderboard
from harness.log import BoundedLog
from harness.model import (
    RUN_TOO_LONG,
    Block,
    Board,
    CaseResult,
    Clock,
    Doubt,
    Mode,
    Passed,
    Run,
    Standing,
    Verdict,
)
from harness.render import text
from harness.render.standings import boards_view, times_as_long
from harness.render.terminal import make_console, run_view, tally
from harness.store import open_store
from tests.fakes import CPU, EPOCH_NS, SHAPES, make_failure, make_run, make_shape
from tests.sampled import sampled_run

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden"
NOW_NS = EPOCH_NS + 90_000 * 10**9

NASTY = "[bold]x[/] \x1b[31mred \u202egnp.py [link=http://x]y \ud800 \u2603"


def draw(view: RenderableType, width: int | None = None, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding)
    make_console(stream, {}, width=width).print(view)
    stream.flush()
    return raw.getvalue().decode(encoding)


def entries() -> list[Run]:
    return [
        make_run("cuda_inline", created=1),
        make_run("torch_dequant", author="baseline", times_us=(90, 200, 50), created=2),
        make_run("mid", author="bob", times_us=(20.05, 40.1, 10), noise=0.01),
        make_run("triton_graph", author="bob", times_us=(23, 44, 13), created=7_000, noise=0.01,
                 doubts=[Doubt.NOISY, Doubt.HOST_BOUND]),
        make_run("a_name_of_a_submission_that_is_quite_long", times_us=(25, 46, 14), created=30),
        make_run("wrong", verdict=Verdict.WRONG_ANSWER, message="7 of 7168 elements differ"),
        make_run("torch_dequant", author="baseline", times_us=(9000, 20000, 5000), device=CPU,
                 id="cpu", floor=None),
    ]  # fmt: skip


def boards(runs: list[Run]) -> tuple[Board, ...]:
    return leaderboard.boards([leaderboard.summarise(run) for run in runs])


def view(runs: list[Run], encoding: str = "utf-8", **options: object) -> RenderableType:
    signs = text.marks(encoding)
    return boards_view(boards(runs), signs=signs, now_ns=NOW_NS, **options)  # type: ignore[arg-type]


def failed() -> Run:
    return make_run(
        "broken",
        verdict=Verdict.WRONG_ANSWER,
        times_us=(),
        message="7 of 7168 elements differ",
        failures=[
            make_failure(
                SHAPES[0],
                Verdict.WRONG_ANSWER,
                "7 of 7168 elements differ; worst at [3, 0, 0]: expected 12.5, got 0.0",
            )
        ],
        doubts=[Doubt.ROOT_WORKER],
        notes=["cannot confine the worker: install bubblewrap"],
        log="compiling\n\ttab \x1b[2J\nlast line",
    )


# Golden files: run with HARNESS_GOLDEN=1 to write them, then look at them


@pytest.mark.parametrize("width", [20, 80, 200])
@pytest.mark.parametrize("name", ["boards", "run", "failed"])
def test_it_looks_as_it_was_when_it_was_last_looked_at(name: str, width: int) -> None:
    signs = text.marks("utf-8")
    made = {
        "boards": lambda: view(entries(), everything=True),
        "run": lambda: run_view(
            sampled_run("cuda_inline", created=1, clock=Clock.WORKER), signs=signs, full=True
        ),
        "failed": lambda: run_view(failed(), signs=signs, full=True),
    }[name]()
    drawn = draw(made, width)
    path = GOLDEN / f"{name}_{width}.txt"
    if os.environ.get("HARNESS_GOLDEN"):
        path.write_text(drawn, encoding="utf-8")
    assert drawn == path.read_text(encoding="utf-8")
    assert max(map(len, drawn.splitlines())) <= width


# Width


def test_no_line_of_piped_output_ends_with_a_blank() -> None:
    """rich fills the last column of a table, which a diff of two outputs or an editor shows."""
    drawn = draw(run_view(failed(), signs=text.marks("utf-8"), full=True))
    assert "doubt" in drawn
    assert not [line for line in drawn.split("\n") if line.endswith(" ")]


def test_piped_output_is_not_cut_whatever_columns_says() -> None:
    drawn = draw(view(entries()))
    for run in entries()[:5]:
        assert f" {run.submission.name} " in drawn
        assert run.id in drawn
    assert "\u2026" not in drawn
    assert make_console(io.StringIO(), {"COLUMNS": "20"}).width > 1000


@pytest.mark.parametrize("width", [20, 24, 40])
def test_a_narrow_screen_keeps_rank_and_score_and_folds_names(width: int) -> None:
    drawn = draw(view(entries()), width)
    for score in ("20.00 \u00b5s", "20.03 \u00b5s", "23.61 \u00b5s", "96.55 \u00b5s", "9.655 ms"):
        assert score in drawn
    squeezed = "".join(drawn.split())
    assert "_inli" in squeezed or "inline" in squeezed


@pytest.mark.parametrize("columns", ["0", "-5", "x", ""])
def test_a_senseless_columns_is_ignored(columns: str) -> None:
    assert make_console(io.StringIO(), {"COLUMNS": columns}).width > 0


def test_scores_that_differ_look_different() -> None:
    runs = [make_run(f"s{t}", times_us=(t,) * 3, noise=0.0001) for t in (1731.8, 1744.9, 1731.84)]
    drawn = draw(view(runs))
    assert "1.73180 ms" in drawn and "1.73184 ms" in drawn and "1.74490 ms" in drawn


# Untrusted text


def nasty_run() -> Run:
    run = make_run(
        NASTY,
        author=NASTY,
        id=NASTY,
        message=NASTY,
        verdict=Verdict.RUNTIME_ERROR,
        failures=[make_failure(SHAPES[0], Verdict.RUNTIME_ERROR, f"closing [/tmp/x] {NASTY}")],
        log=NASTY,
        notes=[NASTY],
        device=dataclasses.replace(CPU, name=NASTY, facts=((NASTY, NASTY),)),
        task=NASTY,
    )
    return dataclasses.replace(run, environment=((NASTY, NASTY),))


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252", "cp437", "latin-1"])
def test_untrusted_text_is_shown_literally_and_never_interpreted(encoding: str) -> None:
    signs = text.marks(encoding)
    passed = dataclasses.replace(nasty_run(), verdict=Verdict.PASSED, cases=make_run().cases)
    drawn = draw(run_view(nasty_run(), signs=signs, full=True), 120, encoding)
    drawn += draw(view([nasty_run(), passed], encoding, everything=True), None, encoding)
    assert "[bold]x[/]" in drawn and "[link=http://x]y" in drawn and "closing [/tmp/x]" in drawn
    assert "\\x1b[31mred" in drawn and "\\u202e" in drawn and "\\ud800" in drawn
    assert not {"\x1b", "\u202e", "\x00", "\ud800"} & set(drawn)


def test_a_name_of_300_characters_does_not_push_rank_and_score_off() -> None:
    drawn = draw(view([make_run("n" * 300)]), 80)
    assert "20.00 \u00b5s" in drawn and max(map(len, drawn.splitlines())) <= 80
    assert drawn.count("n") >= 300


# Encodings


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437", "latin-1"])
def test_every_encoding_shows_the_whole_board(encoding: str) -> None:
    drawn = draw(view([*entries(), make_run("\u0141\u2603")], encoding), 200, encoding)
    assert "torch_dequant" in drawn
    assert "\\u0141\\u2603" in drawn
    assert f"20.00 {text.marks(encoding).micro}s" in drawn


# Colour


def escapes(environment: dict[str, str], *, terminal: bool = False) -> int:
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    make_console(stream, environment, width=120).print(view(entries()))
    return stream.getvalue().count("\x1b")


@pytest.mark.parametrize(
    "environment",
    [{}, {"NO_COLOR": "1"}, {"NO_COLOR": ""}, {"FORCE_COLOR": "0"}, {"FORCE_COLOR": ""},
     {"CI": "true"}, {"TERM": "dumb"}, {"FORCE_COLOR": "1", "NO_COLOR": "1"}],
)  # fmt: skip
def test_a_file_gets_no_colour_unless_it_is_forced(environment: dict[str, str]) -> None:
    assert escapes(environment) == 0


def test_forced_colour_reaches_a_file() -> None:
    assert escapes({"FORCE_COLOR": "1"}) > 0


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({"TERM": "xterm"}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False),
     ({"NO_COLOR": "0"}, False), ({"TERM": "dumb"}, False)],
)  # fmt: skip
def test_a_terminal_gets_colour_unless_it_is_refused(
    environment: dict[str, str], coloured: bool
) -> None:
    assert bool(escapes(environment, terminal=True)) is coloured


# What is said


def test_a_failure_says_where_why_and_what_to_do() -> None:
    drawn = draw(run_view(failed(), signs=text.marks("utf-8")), 100)
    assert "wrong_answer  7168x16384x1 normal inputs: 7 of 7168 elements differ" in drawn
    assert "root worker: the submission ran as root" in drawn
    assert drawn.rstrip().endswith("broken did not pass: wrong_answer")


def test_what_cannot_run_here_is_not_said_to_have_failed() -> None:
    lacking = make_failure(SHAPES[0], Verdict.UNSUPPORTED, "it needs a GPU")
    run = make_run("mine", verdict=Verdict.UNSUPPORTED, failures=[lacking])
    drawn = draw(run_view(run, signs=text.marks("utf-8")), 100)
    assert drawn.rstrip().endswith("mine cannot run here: unsupported")
    assert "did not pass" not in drawn
    wrong = make_failure(SHAPES[1], Verdict.WRONG_ANSWER, "7 of 7168 elements differ")
    run = make_run("mine", verdict=Verdict.UNSUPPORTED, failures=[lacking, wrong])
    assert "mine did not pass" in draw(run_view(run, signs=text.marks("utf-8")), 100)


def test_fifty_failures_are_three_lines_the_runs_own_verdict_first_and_a_way_to_all() -> None:
    plain_ones = [make_failure(SHAPES[0], Verdict.WRONG_ANSWER, f"number {i}") for i in range(49)]
    grave = make_failure(SHAPES[1], Verdict.TAMPERED, "it went on")
    message = "50 of 50 cases failed; 4096x7168x8 (normal): it went on"
    run = make_run(
        id="abc", verdict=Verdict.TAMPERED, message=message, failures=[*plain_ones, grave]
    )
    short = draw(run_view(run, signs=text.marks("utf-8")), 100)
    assert short.count("it went on") == 1
    assert short.index("it went on") < short.index("number 0") < short.index("number 1\n")
    assert "number 2" not in short
    assert "and 47 more; `harness show abc` lists them all" in short
    assert draw(run_view(run, signs=text.marks("utf-8"), full=True), 100).count("number ") == 49


def numbered(count: int, verdict: Verdict, message: str) -> list[CaseResult]:
    shapes = [make_shape(number, 16, 1) for number in range(1, count + 1)]
    return [make_failure(shape, verdict, message) for shape in shapes]


def test_cases_that_nobody_tried_are_counted_and_are_no_failures_of_their_own() -> None:
    signs = text.marks("utf-8")
    over = numbered(52, Verdict.TIMED_OUT, RUN_TOO_LONG)
    replaced = [
        *numbered(2, Verdict.CRASHED, "the process ended (signal SIGSEGV)"),
        *numbered(50, Verdict.CRASHED, "not tried: its process had to be replaced too often"),
    ]
    for failures, count, first in ((over, 51, RUN_TOO_LONG), (replaced, 50, "the process ended")):
        run = make_run(verdict=failures[0].verdict, failures=failures, times_us=())
        for full in (False, True):
            drawn = draw(run_view(run, signs=signs, full=full))
            assert drawn.count(first) == 1
            assert f"and {count} more that were not reached\n" in drawn
            assert "not tried" not in drawn and "51x16x1" not in drawn
            assert "lists them all" not in drawn


def test_a_submission_cannot_have_all_its_failures_left_out_by_their_words() -> None:
    run = make_run(
        verdict=Verdict.RUNTIME_ERROR,
        failures=numbered(9, Verdict.RUNTIME_ERROR, "not tried: haha"),
    )
    assert "not tried: haha" in draw(run_view(run, signs=text.marks("utf-8")))


def test_failures_with_the_same_words_are_one_and_show_says_where_they_all_are() -> None:
    run = make_run(
        verdict=Verdict.RUNTIME_ERROR, failures=numbered(52, Verdict.RUNTIME_ERROR, "no")
    )
    short = draw(run_view(run, signs=text.marks("utf-8")))
    assert "runtime_error  1x16x1 normal inputs and 51 more: no\n" in short
    assert "lists them all" not in short
    whole = draw(run_view(run, signs=text.marks("utf-8"), full=True))
    assert "the same: 2x16x1 normal, 3x16x1 normal, " in whole and "52x16x1 normal\n" in whole


def test_show_lists_a_failure_once_with_how_far_off_it_was() -> None:
    drawn = draw(run_view(failed(), signs=text.marks("utf-8"), full=True))
    assert drawn.count("7168x16384x1") == 1
    assert "expected 12.5, got 0.0 (largest error 12.5, 8192 ulp)" in drawn
    assert drawn.index("cases that passed") < drawn.index("128x256x1  competition")


def printing(count: int) -> Run:
    return make_run(id="abc", log="".join(f"line {number}\n" for number in range(count)))


def test_a_run_says_that_it_printed_something_and_where_that_is() -> None:
    signs = text.marks("utf-8")
    said = "it printed 5000 lines; `harness show abc` has them\n"
    drawn = draw(run_view(printing(5000), signs=signs))
    assert said in drawn and "line 0" not in drawn
    assert "it printed 1 line; `harness show abc` has it\n" in draw(
        run_view(printing(1), signs=signs)
    )
    assert "printed" not in draw(run_view(make_run(log="\n \n"), signs=signs))


def test_a_log_that_was_cut_is_more_than_its_lines_and_a_traceback_is_called_one() -> None:
    log = BoundedLog(100)
    log.feed(b"0123456789\n" * 50)
    kept = log.text()
    error = 'Traceback (most recent call last):\n  File "x.py"\nValueError: no\n'
    drawn = draw(run_view(make_run(log=kept + error), signs=text.marks("utf-8")))
    count = len((kept + error).rstrip().split("\n"))
    assert f"it printed more than {count} lines, a traceback among them;" in drawn


def test_what_is_not_kept_is_shown_at_once_in_part() -> None:
    drawn = draw(run_view(printing(5000), signs=text.marks("utf-8"), stored=False))
    assert "line 2\n" in drawn and "line 3\n" not in drawn
    assert "[4994 more lines" in drawn and "harness show" not in drawn
    assert "line 4996\n" not in drawn and "line 4997\n" in drawn and "line 4999\n" in drawn


def test_show_has_both_ends_of_a_log_and_counts_what_lies_between() -> None:
    signs = text.marks("utf-8")
    drawn = draw(run_view(printing(5000), signs=signs, full=True))
    assert "  line 19\n  [4960 more lines; --json has them]\n  line 4980\n" in drawn
    assert drawn.count("  line ") == 40
    assert draw(run_view(printing(41), signs=signs, full=True)).count("  line ") == 41
    wide = draw(run_view(make_run(log="a" + "x" * 50_000 + "z"), signs=signs, full=True))
    assert "[... 49802 characters ...]" in wide and len(wide) < 3000


@pytest.mark.parametrize("doubt", list(Doubt))
def test_every_doubt_is_worded(doubt: Doubt) -> None:
    drawn = draw(run_view(make_run(doubts=[doubt]), signs=text.marks("ascii")))
    assert f"{doubt}: " in drawn


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_is_shown(verdict: Verdict) -> None:
    run = make_run(verdict=verdict, failures=[make_failure(SHAPES[0], verdict, "because")])
    assert verdict in draw(run_view(run, signs=text.marks("utf-8"), full=True))


def test_a_run_that_cannot_rank_says_why_and_one_that_does_says_its_rank() -> None:
    signs = text.marks("utf-8")
    run = make_run(mode=Mode.BENCHMARK)
    assert "not ranked: made in mode benchmark" in draw(run_view(run, signs=signs))
    place = leaderboard.Place(boards(entries())[0].standings[1], of=5)
    said = draw(run_view(entries()[0], signs=signs, place=place))
    assert "rank 1 of 5 (between 1 and 2 within noise)" in said


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([], None),
        ([("sure", 30, ())], None),
        ([("sure", 30, ()), ("late", 60, (Doubt.NOISY,))], None),
        ([("level", 20.001, ())], "--confirm 2` on that device measures the first 2 again"),
        ([("level", 20.001, ()), ("too", 20.002, ())], "--confirm 3`"),
        ([("unsure", 30, (Doubt.FEW_SAMPLES,))], "--confirm 2`"),
        ([("imported", 30, (Doubt.UNSIGNED_IMPORT,))], None),
    ],
)
def test_a_lead_that_is_in_doubt_comes_with_what_settles_it(
    others: list[tuple[str, float, tuple[Doubt, ...]]], said: str | None
) -> None:
    runs = [make_run("first")]
    runs += [make_run(name, times_us=(t, 2 * t, t / 2), doubts=d) for name, t, d in others]
    drawn = draw(view(runs))
    assert said in drawn if said else "--confirm" not in drawn


def test_doubts_that_every_row_has_are_said_once_and_others_in_their_row() -> None:
    doubts = [Doubt.NOISY, Doubt.BUDGET]
    first, second = make_run("first", doubts=doubts), make_run("second", doubts=doubts)
    drawn = draw(view([first, second]))
    assert drawn.count("noisy") == 1
    assert "Doubts of all of them: noisy, budget.\n" in drawn
    for runs, count in (([first], 1), ([first, make_run("second")], 1), ([first, second], 2)):
        third = [make_run("third", doubts=[Doubt.BUDGET])] if count == 2 else []
        drawn = draw(view([*runs, *third]))
        assert drawn.count("noisy, budget") == count and "all of them" not in drawn


def test_submissions_of_one_name_are_told_apart_by_their_authors() -> None:
    def made(name: str, author: str, time_us: float) -> Run:
        return make_run(name, author=author, times_us=(time_us,) * 3)

    first, second, third = made("same", "ada", 20), made("same", "bob", 40), made("other", "cy", 80)
    drawn = draw(view([first, second, third]))
    assert "same by ada leads; same by bob takes 2.00" in drawn
    level = draw(view([first, made("same", "bob", 20.001), third]))
    assert "same by ada and same by bob share rank 1" in level and "; other takes 4.00" in level
    assert "same leads; other takes 4.00" in draw(view([first, third]))
    signs = text.marks("utf-8")
    assert "\nsame by bob passed in 40" in draw(run_view(second, signs=signs, by_author=True))
    assert "\nsame passed in 40" in draw(run_view(second, signs=signs))


def test_a_run_without_cases_or_samples_is_drawn() -> None:
    empty = dataclasses.replace(
        make_run(verdict=Verdict.IMPORT_ERROR, message="no module named x"), cases=(), score_ns=None
    )
    drawn = draw(run_view(empty, signs=text.marks("utf-8"), full=True), 80)
    assert "no module named x" in drawn


# Units


@pytest.mark.parametrize(
    ("ns", "shown"),
    [(0.5, "0.5000 ns"), (1, "1.000 ns"), (999.4, "999.4 ns"), (999.96, "1.000 \u00b5s"),
     (1731.8e3, "1.732 ms"), (1744.9e3, "1.745 ms"), (12.5e9, "12.50 s"), (None, "\u2013"),
     (float("nan"), "\u2013"), (float("inf"), "\u2013")],
)  # fmt: skip
def test_a_time_has_four_figures_in_the_unit_that_suits_it(ns: float | None, shown: str) -> None:
    assert text.duration(ns) == shown


def test_times_in_rfc_3339_are_utc_and_impossible_ones_unknown() -> None:
    assert text.rfc3339(EPOCH_NS + 123_456_789) == "2026-03-01T12:00:00.123Z"
    assert text.rfc3339(10**30) is None and text.rfc3339(-(10**30)) is None


def test_the_samples_shown_are_those_that_were_published() -> None:
    """Windows of many calls, whose first may be anything, bound a time and are none."""
    run = sampled_run(times_us=(20.0,), shapes=SHAPES[:1], clock=Clock.WORKER, families=())
    (case,) = run.cases
    assert case.timing is not None and isinstance(case.outcome, Passed)
    many = Block(0, 18, (9_000_000, 360_000), (9_000_000, 360_000))
    timing = dataclasses.replace(case.timing, blocks=(*case.timing.blocks, many))
    both = dataclasses.replace(case, outcome=dataclasses.replace(case.outcome, timing=timing))
    for with_windows in (run, dataclasses.replace(run, cases=(both,))):
        drawn = draw(run_view(with_windows, signs=text.marks("utf-8"), full=True), 80)
        line = drawn.split("slowest 1%\n")[1].splitlines()[0]
        assert re.fullmatch(r"7168x16384x1  19\.[67]\d µs .* 20\.[2-5]\d µs", line.strip()), line


def test_a_histogram_shows_a_lone_sample_beside_thousands() -> None:
    got = text.histogram([1000.0] * 5000 + [1100.0] * 60, width=10)
    assert got is not None
    assert got[1][0] == "\u2588" and got[1][-1] == "\u2581" and got[1][1:-1].isspace()
    assert text.histogram([1.0, 2.0]) is None


# The commands, as processes and in a terminal


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)  # outside of any task, whose version would not be that of the fakes
    where = f"sqlite:///{tmp_path / 'harness.db'}"
    with open_store(where, create=True) as store:
        for run in entries():
            store.add(run)
    return where


def harness(*argv: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    code = "import sys; from harness.cli import main; main()"
    inherited = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LD_LIBRARY_PATH")}
    environment = {**inherited, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, "-c", code, *argv], env=environment, capture_output=True, cwd="/"
    )


@pytest.mark.parametrize(
    "environment",
    [{"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
     {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "cp1252"}, {"COLUMNS": "20"}],
)  # fmt: skip
def test_leaderboard_and_show_work_in_every_locale(url: str, environment: dict[str, str]) -> None:
    for argv in (("leaderboard", "--all"), ("show", "cpu")):
        got = harness(*argv, "--db", url, **environment)
        assert got.returncode == 0, got.stderr
        assert b"torch_dequant" in got.stdout and got.stderr == b""


def test_leaderboard_loads_neither_torch_nor_scipy_nor_numpy(url: str) -> None:
    code = (
        "import sys; from harness.cli import run; code = run(sys.argv[1:]);"
        "assert not {'torch', 'scipy', 'numpy'} & {*sys.modules}; sys.exit(code)"
    )
    argv = [sys.executable, "-c", code, "leaderboard", "--db", url]
    got = subprocess.run(argv, capture_output=True, cwd=ROOT)
    assert got.returncode == 0, got.stderr


def test_in_a_terminal_the_board_is_as_wide_as_columns(url: str) -> None:
    code = "import sys; from harness.cli import main; main()"
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": "60", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", code, "leaderboard", "--db", url]
    process = subprocess.Popen(argv, stdout=slave, env=environment, cwd="/")
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        shown += part
    assert process.wait() == 0
    os.close(master)
    assert max(len(line) for line in shown.decode().splitlines()) <= 60


def test_limit_cuts_the_rows_and_not_the_ranks(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["leaderboard", "--db", url, "--limit", "1", "--device", "NVIDIA H200"]) == 0
    shown = capfd.readouterr().out
    assert "4 more entries are not shown" in shown and "share rank 1" in shown


@pytest.mark.parametrize("argv", [["--device", "Cray"], ["--task", "none"]])
def test_a_filter_that_fits_nothing_says_so(
    url: str, argv: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["leaderboard", "--db", url, *argv]) == 2
    assert "no run is o" in (said := capfd.readouterr().err) and "there are runs of '" in said


def test_an_empty_board_says_what_to_run_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    task = tmp_path / "task"
    ignored = shutil.ignore_patterns("__pycache__", "results")
    shutil.copytree(ROOT / "tests/problems/double", task, ignore=ignored)
    before = sorted(task.rglob("*"))
    monkeypatch.chdir(task)
    monkeypatch.delenv("HARNESS_DB", raising=False)
    assert cli.run(["leaderboard"]) == 0
    assert "harness run submissions/torch_dequant.py" in capfd.readouterr().out
    assert sorted(task.rglob("*")) == before


def test_show_without_a_run_lists_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    url = f"sqlite:///{tmp_path / 'x.db'}"
    with open_store(url, create=True) as store:
        store.add(
            make_run("old", id="aaaa", created=1),
            make_run("new", id="bbbb", created=2),
            make_run("new", id="cccc", created=3, mode=Mode.TEST),
            make_run("bad", id="dddd", created=4, verdict=Verdict.CRASHED, message="gone"),
        )
    assert cli.run(["show", "--db", url]) == 0
    rows = capfd.readouterr().out.splitlines()
    ids = [line.split()[0] for line in rows[2:6]]
    assert ids == ["dddd", "cccc", "bbbb", "aaaa"]
    assert rows[2].endswith("gone")
    assert rows[3].endswith("made in mode test")
    assert rows[-1] == "`harness show RUN` has one in full."
    assert cli.run(["show", "--limit", "2", "--json", "--db", url]) == 0
    listed = json.loads(capfd.readouterr().out)["listed"]
    assert [(run["id"], run["rank"], run["verdict"]) for run in listed] == [
        ("dddd", None, "crashed"),
        ("cccc", None, "passed"),
    ]
    assert cli.run(["show", "--json", "--db", url]) == 0
    ranks = {run["id"]: run["rank"] for run in json.loads(capfd.readouterr().out)["listed"]}
    assert sorted(filter(None, (ranks["aaaa"], ranks["bbbb"]))) == [1, 1]


def test_a_list_of_runs_says_of_each_without_a_rank_what_the_board_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    url = f"sqlite:///{tmp_path / 'x.db'}"
    with open_store(url, create=True) as store:
        store.add(
            make_run("old", id="aaaa", created=1, digest="e" * 64),
            make_run("gone", id="bbbb", created=2),
            make_run("twice", id="cccc", created=3),
            make_run("twice", id="dddd", created=4),
            make_run("gone", id="eeee", created=5, verdict=Verdict.CRASHED, message="lost"),
        )
    assert cli.run(["show", "--limit", "4", "--db", url]) == 0
    rows = capfd.readouterr().out.splitlines()[2:6]
    assert [row.split()[0] for row in rows] == ["eeee", "dddd", "cccc", "bbbb"]
    assert rows[2].endswith("superseded by dddd")
    assert rows[3].endswith("the same file did not pass in eeee")
    assert cli.run(["show", "--db", url]) == 0
    assert capfd.readouterr().out.splitlines()[6].endswith("another version of the task")


def test_show_before_any_run_says_what_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARNESS_DB", raising=False)
    assert cli.run(["show"]) == 0
    assert "No run is stored yet" in capfd.readouterr().out
    assert cli.run(["show", "--db", f"sqlite:///{tmp_path}/none.db"]) == 2


def test_wrong_arguments_and_databases_exit_with_2_or_3_and_one_line(
    url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.db"
    broken.write_text("no database " * 100)
    for argv, code in [
        (["show", "nothing", "--db", url], 2),
        (["show", "--limit", "0", "--db", url], 2),
        (["leaderboard", "--limit", "0", "--db", url], 2),
        (["leaderboard", "--format", "xml"], 2),
        (["leaderboard", "--db", "harness.db"], 2),
        (["leaderboard", "--db", f"sqlite:///{tmp_path / 'none.db'}"], 2),
        (["leaderboard", "--db", f"sqlite:///{broken}"], 3),
    ]:
        assert cli.run(argv) == code, argv
        said = capfd.readouterr()
        assert said.out == "" and 1 <= len(said.err.splitlines()) <= 2


def test_a_tally_counts_what_cannot_run_here_apart() -> None:
    verdicts = [Verdict.PASSED, Verdict.CRASHED, Verdict.UNSUPPORTED, Verdict.WRONG_ANSWER]
    runs = [make_run(verdict=verdict) for verdict in verdicts]
    assert tally(runs) == "1 passed, 2 failed, 1 unsupported"
    assert tally(runs[1:2]) == "1 failed"


@pytest.mark.parametrize(
    ("score_us", "half_width_us", "said"),
    [(30, 1.5, "1.50 ± 0.11 times"), (30, 0.03, "1.500 ± 0.002 times"), (20.2, 0.2, "1.010 ")],
)
def test_a_lead_has_no_error_of_naught(score_us: float, half_width_us: float, said: str) -> None:
    (board,) = boards([make_run("a")])
    (some,) = board.standings

    def at(score: float) -> Standing:
        half_width = half_width_us / score_us * score
        return dataclasses.replace(
            some, score_ns=score, low_ns=score - half_width, high_ns=score + half_width
        )

    signs = text.marks("utf-8")
    assert times_as_long(at(20_000), at(score_us * 1e3), signs).startswith(said)


@pytest.mark.timeout(20)
def test_blanks_at_the_ends_of_lines_are_left_out_whatever_stands_between_them() -> None:
    stream = io.StringIO()
    make_console(stream, {}).print(f"a{' ' * 300_000}b   \n c  \n\nd", soft_wrap=True)
    assert stream.getvalue() == f"a{' ' * 300_000}b\n c\n\nd\n"
