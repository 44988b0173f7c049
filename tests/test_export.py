"""What programs, spreadsheets and pull requests get: exact fields, full numbers, no surprises."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from harness import cli, leaderboard
from harness.model import Board, CaseResult, Doubt, Failed, Mode, Passed, Run, Verdict, Worst
from harness.render import export, sheets
from harness.store import open_store
from tests.fakes import CPU, SHAPES, make_failure, make_run

RUN = """id task mode verdict message created duration_s submission device reference isolation
clock doubts score_ns score_low_ns score_high_ns rank cases log"""
CASE = "kind shape inputs verdict message check timing"
CHECK = "max_abs max_rel max_ulp mismatches elements worst"
TIMING = """median_ns low_ns high_ns mean_ns std_ns best_ns worst_ns samples processes
host_median_ns judge_ns judge_most_ns floor_ns stop"""
STANDING = """rank rank_low rank_high submission author score_ns low_ns high_ns speedup light_speed
shapes run created doubts isolation clock"""

NASTY = 'a|b`c\n"d", <script>alert(1)</script> @team #1 [x](http://y) \u202e\ud800\x1b[31m'


def boards(*runs: Run) -> tuple[Board, ...]:
    return leaderboard.boards([leaderboard.summarise(run) for run in runs])


def strict(document: str) -> Any:
    """Parse JSON as a strict reader does: NaN and Infinity are errors."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(document, parse_constant=refuse)


def test_a_run_has_exactly_the_fields_of_the_schema() -> None:
    failure = make_failure(SHAPES[0], Verdict.WRONG_ANSWER, "7 differ")
    run = make_run(id="abc", failures=[failure], doubts=[Doubt.NOISY], log="a\n" * 9000)
    document = strict(export.dumps(export.run_document([run], {"abc": 3})))
    assert list(document) == ["schema", "runs"] and document["schema"] == 1
    (shown,) = document["runs"]
    assert sorted(shown) == sorted(RUN.split())
    assert shown["log"] == "a\n" * 9000
    assert shown["rank"] == 3 and shown["score_ns"] == run.score_ns
    assert shown["score_low_ns"] < run.score_ns < shown["score_high_ns"]
    assert shown["created"] == "2026-03-01T12:00:00.000Z" and shown["duration_s"] == 22.4
    assert sorted(shown["submission"]) == ["author", "name", "path", "sha256"]
    assert shown["device"] == {"kind": "cuda", "name": "NVIDIA H200", "driver": "580.1"}
    assert all(sorted(case) == sorted(CASE.split()) for case in shown["cases"])
    test, bad, timed = shown["cases"][:3]
    assert test["timing"] is None and sorted(test["check"]) == sorted(CHECK.split())
    assert bad["verdict"] == "wrong_answer" and bad["check"]["worst"]["index"] == [3, 0, 0]
    assert sorted(timed["timing"]) == sorted(TIMING.split())
    assert timed["shape"] == {"m": 7168, "k": 16384, "l": 1} and timed["kind"] == "benchmark"


@pytest.mark.parametrize("fields", [RUN, CASE, CHECK, TIMING, STANDING])
def test_every_field_is_documented(fields: str) -> None:
    said = (Path(__file__).parents[1] / "docs/json.md").read_text(encoding="utf-8")
    assert [field for field in fields.split() if f"`{field}`" not in said] == []


def test_a_boards_document_has_exactly_the_fields_of_the_schema() -> None:
    document = strict(export.dumps(export.boards_document(boards(make_run(), make_run("b")))))
    (board,) = document["boards"]
    assert list(board) == ["task", "device", "standings"]
    assert all(sorted(s) == sorted(STANDING.split()) for s in board["standings"])
    first = board["standings"][0]
    assert first["speedup"] is None and len(first["shapes"]) == 3
    assert first["score_ns"] == boards(make_run())[0].standings[0].score_ns


def test_all_adds_the_runs_without_a_rank_and_why() -> None:
    made = boards(make_run(verdict=Verdict.CRASHED, message="signal SIGSEGV"))
    (row,) = export.boards_document(made, everything=True)["boards"][0]["unranked"]
    assert row["verdict"] == "crashed" and row["reason"] == "signal SIGSEGV"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_null_and_the_json_stays_strict(bad: float) -> None:
    run = make_run(score_ns=bad)
    cases: list[CaseResult] = []
    for case in run.cases:
        assert isinstance(case.outcome, Passed)
        check = dataclasses.replace(
            case.outcome.check, max_abs=bad, max_rel=bad, worst=Worst((0,), bad, bad, bad)
        )
        timing = case.timing and dataclasses.replace(case.timing, std_ns=None, best_ns=bad)
        cases.append(dataclasses.replace(case, outcome=Passed(check, timing)))
    run = dataclasses.replace(run, cases=tuple(cases))
    (shown,) = strict(export.dumps(export.run_document([run], {})))["runs"]
    assert shown["score_ns"] is None and shown["rank"] is None
    worst = {"index": [0], "expected": str(bad), "got": str(bad), "ulp": None}
    assert shown["cases"][0]["check"]["worst"] == worst
    assert shown["cases"][1]["timing"]["best_ns"] is None


@pytest.mark.parametrize(
    ("worst", "shown"),
    [
        (Worst((1,), math.nan, 172.25, 0.0), ("nan", 172.25, None)),  # 0: as 0.2 stored it
        (Worst((1,), -math.inf, 172.25, math.inf), ("-inf", 172.25, None)),
        (Worst((1,), 0.5, math.inf, math.inf), (0.5, "inf", None)),
        (Worst((1,), 0.5, 1.0, 8.0), (0.5, 1.0, 8.0)),
    ],
)
def test_an_element_that_is_nan_or_infinite_is_said_to_be_and_no_distance_away(
    worst: Worst, shown: tuple[object, ...]
) -> None:
    """NaN and infinity were both null, and 0 ulp from any number."""
    failed = make_failure(SHAPES[0], Verdict.WRONG_ANSWER, "x")
    assert failed.outcome.check is not None
    check = dataclasses.replace(failed.outcome.check, worst=worst)
    outcome = Failed(Verdict.NONFINITE, "x", check)
    run = make_run(failures=[dataclasses.replace(failed, outcome=outcome)])
    (told,) = strict(export.dumps(export.run_document([run], {})))["runs"]
    found = told["cases"][1]["check"]["worst"]
    assert (found["expected"], found["got"], found["ulp"]) == shown


def test_json_survives_any_text_and_any_locale() -> None:
    run = make_run(NASTY, author=NASTY, message=NASTY)
    document = export.dumps(export.run_document([run], {}))
    assert document.isascii()
    assert strict(document)["runs"][0]["submission"]["name"] == NASTY


def test_a_device_fact_cannot_replace_the_devices_name() -> None:
    run = make_run()
    device = dataclasses.replace(run.device, facts=(("name", "B200"), ("kind", "tpu")))
    shown = export.run_document([dataclasses.replace(run, device=device)], {})["runs"][0]
    assert shown["device"] == {"kind": "cuda", "name": "NVIDIA H200"}


def read(document: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(document)))


def test_csv_has_a_line_per_entry_and_every_digit() -> None:
    made = boards(make_run("a", times_us=(20.123456789, 40, 10)), make_run("b", noise=0.1))
    rows = read(sheets.boards_csv(made))
    assert [row["submission"] for row in rows] == [s.submission for s in made[0].standings]
    for row, standing in zip(rows, made[0].standings, strict=True):
        assert float(row["score_ns"]) == standing.score_ns
        assert float(row["time_ns 7168x16384x1"]) == standing.shapes[0].median_ns
        assert row["speedup"] == ""


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r="])
def test_csv_text_is_never_a_formula(start: str) -> None:
    name = f'{start}HYPERLINK("http://evil","x")'
    failed = make_run(name, author=name, verdict=Verdict.CRASHED, message=name)
    for row in read(
        sheets.boards_csv(boards(make_run(name, author=name), failed), everything=True)
    ):
        for value in row.values():
            assert not value or value[0] not in "=+@\t\r"
            assert not value.startswith("-")


def test_csv_of_nasty_text_keeps_one_line_per_entry() -> None:
    document = sheets.boards_csv(boards(make_run(NASTY, author=NASTY)))
    assert len(document.splitlines()) == 2
    document.encode()


def cells(line: str) -> list[str]:
    """Split a Markdown table row as GitHub does: at bars that no backslash precedes."""
    parts, current = [], ""
    for i, character in enumerate(line):
        if character == "|" and (i == 0 or line[i - 1] != "\\"):
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return parts[1:]


def test_markdown_is_a_table_with_a_row_per_entry() -> None:
    lines = sheets.boards_markdown(boards(make_run(), make_run("b", noise=0.05))).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 4
    assert (
        cells(rows[2])[:4] == ["1 (1\u20132)", "`b`", "`ada`", "20.00 \u00b5s"]
        or "`fast`" in rows[2]
    )
    assert len({len(cells(row)) for row in rows}) == 1


@pytest.mark.parametrize("name", [NASTY, "a\\|b", "``", "`", "|", "", "@someone"])
def test_markdown_shows_untrusted_text_as_code_in_its_own_cell(name: str) -> None:
    failed = make_run("f", author=name, verdict=Verdict.CRASHED, message=name)
    document = sheets.boards_markdown(boards(make_run(name, author=name), failed), everything=True)
    rows = [line for line in document.splitlines() if line.startswith("| ") and "---" not in line]
    ranked, unranked = rows[1], rows[-1]
    assert len(cells(ranked)) == 7 and len(cells(unranked)) == 3
    for cell in (cells(ranked)[1], cells(unranked)[1]):
        assert cell == "\u2013" or (cell.startswith("`") and cell.endswith("`"))


def test_no_boards_make_empty_documents() -> None:
    assert export.boards_document([]) == {"schema": 1, "boards": []}
    assert len(sheets.boards_csv([]).splitlines()) == 1
    assert sheets.boards_markdown([]) == ""


def test_the_commands_print_one_document_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path / 'x.db'}"
    with open_store(url, create=True) as store:
        store.add(make_run("one", id="aa"))
        store.add(make_run("two", id="bb", times_us=(30, 60, 15)))
        store.add(make_run("two", id="cc", verdict=Verdict.CRASHED, mode=Mode.TEST))

    def printed(*argv: str) -> str:
        assert cli.run([*argv, "--db", url]) == 0
        said = capfd.readouterr()
        assert said.err == ""
        return said.out

    assert len(strict(printed("leaderboard", "--json"))["boards"][0]["standings"]) == 2
    limited = strict(printed("leaderboard", "--format", "json", "--limit", "1", "--all"))
    assert len(limited["boards"][0]["standings"]) == len(limited["boards"][0]["unranked"]) == 1
    assert strict(printed("show", "b", "--json"))["runs"][0]["rank"] == 2
    assert strict(printed("show", "cc", "--json"))["runs"][0]["rank"] is None
    assert len(read(printed("leaderboard", "--format", "csv"))) == 2
    assert printed("leaderboard", "--format", "markdown").count("\n| ") >= 3


@pytest.fixture
def two_boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with runs of two tasks, on a GPU and on a processor."""
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path / 'x.db'}"
    with open_store(url, create=True) as store:
        store.add(make_run("one", id="aa"), make_run("two", id="bb", device=CPU))
        store.add(make_run("three", id="cc", task="double", mode=Mode.TEST, device=CPU))
    return url


BOTH = "there are runs of 'AMD EPYC 9554' and 'NVIDIA H200'"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--device", "foo"], f"--device foo: no run is on a device of that name; {BOTH}"),
        (["--device", "h200"], f"{BOTH}. Did you mean 'NVIDIA H200'?"),
        (["--device", "AMD EPIC 9554"], f"{BOTH}. Did you mean 'AMD EPYC 9554'?"),
        (["--task", "double", "--device", "NVIDIA H200"], "there are runs of 'AMD EPYC 9554'"),
        (
            ["--task", "doubel"],
            "--task doubel: no run is of that task; there are runs of 'double' and 'nvfp4_gemv'. "
            "Did you mean 'double'?",
        ),
    ],
)
def test_a_task_or_a_device_that_no_run_is_of_is_told_with_those_that_there_are(
    options: list[str],
    said: str,
    two_boards: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It read as if nothing were ranked, and --all as if it would help."""
    page = tmp_path / "page.html"
    for more in ([], ["--json"], ["--format", "csv"], ["--html", str(page)], ["--all"]):
        assert cli.run(["leaderboard", *options, *more, "--db", two_boards]) == 2
        shown = capfd.readouterr()
        assert said in shown.err and shown.out == ""
    assert not page.exists()
    for more in ([], ["--all"]):
        assert cli.run(["export", "b.json", *options, *more, "--db", two_boards]) == 2
        assert f"nothing to export: {options[-2]} {options[-1]}: no run" in capfd.readouterr().err


def test_a_device_with_runs_of_which_none_is_ranked_is_not_called_unknown(
    two_boards: str, capfd: pytest.CaptureFixture[str]
) -> None:
    narrowed = ["--task", "double", "--device", "AMD EPYC 9554", "--db", two_boards]
    assert cli.run(["leaderboard", *narrowed]) == 0
    assert "No ranked run fits --device and --task" in capfd.readouterr().out
    assert cli.run(["export", "b.json", *narrowed]) == 2
    assert "no run holds a standing; --all takes every run" in capfd.readouterr().err
