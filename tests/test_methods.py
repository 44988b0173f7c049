"""The comparison of timing methods: its rules and its table, on made-up samples."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import methods, rivals
from benchmarks.figures import Entry, Figure, Missing, Subject, figure, right, table, verdict
from harness.model import Verdict
from tests.fakes import make_run

MS = 1_000_000


def test_the_contest_stops_on_three_equal_samples_however_coarse_its_clock() -> None:
    clock = itertools.count(0, 60 * MS)
    times = rivals.contest(lambda: 5_000.0, lambda: next(clock))
    assert len(times) == rivals.CONTEST_LEAST


def test_the_contest_goes_on_while_its_samples_differ_and_ends_all_the_same() -> None:
    samples = itertools.cycle([5_000.0, 9_000.0])
    clock = itertools.count(0, MS)
    assert len(rivals.contest(lambda: next(samples), lambda: next(clock))) == rivals.CONTEST_MOST
    slow = itertools.count(0, 1000 * MS)
    assert len(rivals.contest(lambda: next(samples), lambda: next(slow))) == 4


def test_activities_are_split_at_the_flushes_and_one_is_both_halves_of_a_clean_one() -> None:
    seen = [
        ("warm", 0, 9),
        ("fill", 10, 5),
        ("gemv", 20, 3),
        ("copy", 30, 2),
        ("read_all", 45, 4),
        ("fill", 40, 4),
        ("gemv", 50, 6),
    ]
    calls = rivals.split(seen)
    assert calls == [(False, [(20, 3), (30, 2)]), (True, [(50, 6)])]
    assert rivals.span_ns(calls[0][1]) == 12
    assert rivals.busy_ns(calls[0][1]) == 5


def test_a_call_of_which_nothing_was_recorded_is_no_figure() -> None:
    with pytest.raises(ValueError, match="recorded no kernel"):
        rivals.split([("fill", 0, 1), ("fill", 2, 1), ("gemv", 4, 1)])


class FakeGpu:
    """The contest works, do_bench raises, CUPTI saw one call of each kind."""

    def contest(self) -> list[float]:
        return [10.0, 30.0, 11.0]

    def do_bench(self) -> list[float]:
        raise RuntimeError("no triton")

    def cupti(self) -> list[tuple[bool, rivals.Call]]:
        return [(False, [(0, 10), (20, 10)]), (True, [(0, 8), (20, 8)])]


def test_a_method_that_fails_does_not_end_the_others() -> None:
    found = rivals.measure(FakeGpu(), 1000)
    contest, cupti, truth = found["contest"], found["cupti"], found["truth"]
    assert isinstance(contest, Figure) and contest.published_ns == 17.0 and contest.median_ns == 11
    assert contest.wall_ns >= 1000
    assert found["do_bench"] == Missing("RuntimeError: no triton")
    assert isinstance(cupti, Figure) and cupti.published_ns == 30
    assert isinstance(truth, Figure) and truth.published_ns == 16


def test_a_figure_is_right_within_five_per_cent_or_a_microsecond() -> None:
    assert right(105_000, 100_000) and not right(106_000, 100_000)
    assert right(11_000, 10_000) and not right(8_900, 10_000)


def subject() -> Subject:
    runs = tuple(figure([us * 1e3], 2_000_000_000, publishes="mean") for us in (30.0, 33.0))
    refused = Missing("unordered: wait | for it")
    entries = (Entry("harness", (refused,)), Entry("contest", runs), Entry("cupti", (runs[0],)))
    return Subject("odd", Entry("truth", (runs[0],)), entries)


def test_the_table_has_a_row_for_each_method_also_for_one_without_a_figure() -> None:
    rows = table([subject()]).splitlines()[2:]
    assert [row.count("|") for row in rows] == [rows[0].count("|")] * 4
    assert rows[1].endswith("| n/a | unordered: wait / for it |")
    assert "| 31.50 | 31.50 | 31.50 | 1 | 2/2 | 10.00% | 2.0 | +5.0% right |" in rows[2]
    assert "| 1/1 | - |" in rows[3]


def test_the_sentence_says_who_is_right_and_who_is_not() -> None:
    assert verdict(subject()) == (
        "odd: it costs 30.00 us; right: contest, cupti; "
        "harness gives no figure (unordered: wait | for it)."
    )
    blind = Subject("odd", Entry("truth", (Missing("no GPU"),)), ())
    assert verdict(blind) == "odd: no truth to hold against: no GPU."


def test_of_a_submission_that_is_not_ordered_no_figure_is_the_right_one() -> None:
    entries = (
        Entry("harness", (Missing("unordered"),)),
        Entry("contest", (figure([3_000.0], 1, publishes="mean"),)),
    )
    found = Subject(
        "early", Entry("truth", (figure([12_000.0], 1, publishes="mean"),)), entries, ordered=False
    )
    assert verdict(found) == (
        "early: its kernels take 12.00 us, begun before their inputs are there; right: harness, "
        "which gives no figure (unordered); contest is -75% off."
    )


def test_what_a_rivals_process_said_is_read_or_its_last_words_are_the_reason() -> None:
    good = 'noise\n{"contest": {"why": "x"}}\n'
    assert methods.parse(good, "") == {"contest": Missing("x")}
    lost = methods.parse("noise", "Traceback\n\nMemoryError: all of it\n")
    assert lost["truth"] == Missing("MemoryError: all of it")
    assert methods.parse("", "")["cupti"] == Missing("it printed nothing")


def test_a_refused_run_of_ours_is_no_figure_but_a_reason() -> None:
    run = make_run(verdict=Verdict.UNORDERED, times_us=())
    outcome = methods.figure_of(run, 1)
    assert isinstance(outcome, Missing) and outcome.why.startswith("unordered")


@pytest.mark.parametrize("name", methods.NAMES)
def test_every_submission_is_one_file_that_needs_nothing_beside_it(name: str) -> None:
    source = methods.source_of(name)
    compile(source, name, "exec")
    assert "import triton_graph" not in source and "from triton_graph" not in source
    assert source.count("\ndef custom_kernel") == 2  # the kernel's own, then the one that counts


def test_the_copied_task_has_the_contests_inputs_only(tmp_path: Path) -> None:
    from harness import task

    methods.copy_task(tmp_path)
    copied = task.load(tmp_path)
    assert copied.inputs == ("competition",) and copied.hard == ()
    assert copied.ranked == task.load(methods.ROOT).ranked


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_a_submission_is_right_under_tritons_interpreter(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    path.write_text(methods.source_of("host_bound"), encoding="utf-8")
    code = (
        "import sys; from pathlib import Path; from benchmarks import rivals;"
        "from reference.oracle import exact; from task.generator import generate_input;"
        "data = generate_input(128, 256, 1, 7); expected = exact(data).expected;"
        "assert rivals.load(Path(sys.argv[1]))(data).equal(expected)"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", code, str(path)]
    subprocess.run(command, check=True, cwd=methods.ROOT, env=environment)
