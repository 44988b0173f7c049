"""The samples behind a published time, and what is left of a run when no worker's word counts."""

from __future__ import annotations

import dataclasses
import json
import zlib
from pathlib import Path

import pytest
import sqlalchemy as sa

from harness import cli, leaderboard, samples, stats
from harness.database import details
from harness.model import Clock, Passed, Run
from harness.store import open_store
from tests.fakes import SHAPES
from tests.sampled import sampled_run

US = 1000.0


def test_a_lie_moves_what_is_published_and_nothing_of_what_the_judge_saw() -> None:
    honest, liar = sampled_run(lie_ns=0), sampled_run(lie_ns=900)
    assert liar.score_ns and honest.score_ns
    assert liar.score_ns < 0.95 * honest.score_ns
    by_judge = samples.by_the_judge(honest), samples.by_the_judge(liar)
    assert leaderboard.summarise(by_judge[0]) == leaderboard.summarise(by_judge[1])
    assert {run.clock for run in by_judge} == {Clock.JUDGE}


def test_a_time_of_the_judges_holds_all_that_a_bracket_may_cost() -> None:
    run = samples.by_the_judge(sampled_run(times_us=(20.0, 40.0, 10.0), judge_width_ns=1200))
    for case, us in zip(run.cases[-3:], (20.0, 40.0, 10.0), strict=True):
        assert case.timing is not None
        assert case.timing.low_ns < us * US < us * US + 1200 < case.timing.high_ns
        assert case.timing.low_ns > us * US * 0.98
        assert case.timing.high_ns < (us * US + 1200) * 1.02
    assert run.score_ns == pytest.approx(
        stats.geometric_mean([c.timing.median_ns for c in run.cases if c.timing])
    )
    summary = leaderboard.summarise(run)
    assert summary.low_ns is not None
    assert summary.high_ns is not None
    # What a bracket costs is one error for all three shapes: it does not shrink with their number.
    assert summary.high_ns / summary.low_ns > (21.2 / 20 * 41.2 / 40 * 11.2 / 10) ** (1 / 3)


def _board(*runs: Run) -> dict[str, int]:
    (board,) = leaderboard.boards([leaderboard.summarise(run) for run in runs])
    return {standing.submission: standing.rank for standing in board.standings}


def test_a_lie_that_the_bracket_allows_earns_no_rank_by_the_judges_clock() -> None:
    honest = sampled_run("honest", id="aaaaaaaaaaaa", seed=1)
    liar = sampled_run("liar", id="bbbbbbbbbbbb", seed=2, lie_ns=900)
    slow = sampled_run("slow", id="cccccccccccc", seed=3, times_us=(30.0, 60.0, 15.0))
    assert _board(honest, liar, slow) == {"liar": 1, "honest": 2, "slow": 3}
    judged = _board(*map(samples.by_the_judge, (honest, liar, slow)))
    assert judged == {"liar": 1, "honest": 1, "slow": 3}


def test_on_a_cpu_the_published_times_are_the_judges() -> None:
    run = sampled_run(clock=Clock.HOST)
    assert samples.by_the_judge(run) is run


def test_what_no_clock_of_the_judges_saw_has_no_time_by_it() -> None:
    run = samples.by_the_judge(sampled_run(judge_width_ns=None))
    assert run.score_ns is None
    assert leaderboard.ineligible(run, SHAPES) == f"no time for {SHAPES[0].label}"


def test_one_case_without_the_judges_time_leaves_no_score() -> None:
    run = sampled_run()
    *rest, last = run.cases
    assert isinstance(last.outcome, Passed)
    assert last.outcome.timing is not None
    bare = dataclasses.replace(last.outcome.timing, judge_most_ns=None)
    blind = dataclasses.replace(last, outcome=dataclasses.replace(last.outcome, timing=bare))
    mixed = samples.by_the_judge(dataclasses.replace(run, cases=(*rest, blind)))
    assert mixed.score_ns is None


@pytest.fixture(autouse=True)
def _outside_of_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _stored(folder: Path, *made: Run) -> str:
    url = f"sqlite:///{folder / 'x.db'}"
    with open_store(url, create=True) as store:
        store.add(*made)
    return url


def test_a_board_by_the_judges_clock_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    honest = sampled_run("honest", id="aaaaaaaaaaaa", seed=1)
    liar = sampled_run("liar", id="bbbbbbbbbbbb", seed=2, lie_ns=900)
    db = ["--db", _stored(tmp_path, honest, liar)]
    assert cli.run(["leaderboard", *db]) == 0
    shown = capfd.readouterr().out
    assert "liar leads; honest takes" in shown
    assert "judge" not in shown.split("\n\n")[-1]
    assert cli.run(["leaderboard", "--judge-clock", *db]) == 0
    shown = capfd.readouterr().out
    assert "share rank 1: their difference is within noise." in shown
    assert "By the judge's own clock, which no submission can move." in shown
    assert cli.run(["leaderboard", "--judge-clock", "--json", *db]) == 0
    (board,) = json.loads(capfd.readouterr().out)["boards"]
    assert [(s["rank"], s["clock"]) for s in board["standings"]] == [(1, "judge")] * 2


def test_the_judges_board_leaves_out_whose_samples_are_damaged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = _stored(
        tmp_path, sampled_run("one", id="aaaaaaaaaaaa"), sampled_run("two", id="bbbbbbbbbbbb")
    )
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        spoilt = details.update().where(details.c.run == "aaaaaaaaaaaa")
        connection.execute(spoilt.values(data=zlib.compress(b"{}")))
    engine.dispose()
    assert cli.run(["leaderboard", "--judge-clock", "--all", "--json", "--db", url]) == 0
    (board,) = json.loads(capfd.readouterr().out)["boards"]
    assert [s["submission"] for s in board["standings"]] == ["two"]
    assert [row["submission"] for row in board["unranked"]] == ["one"]


def test_the_judges_board_is_the_same_with_all_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    known = sampled_run("one", id="aaaaaaaaaaaa", created=1)
    blind = sampled_run("one", id="bbbbbbbbbbbb", created=2, judge_width_ns=None)
    url = _stored(tmp_path, known, blind, sampled_run("two", id="cccccccccccc"))
    for option in ([], ["--all"]):
        assert cli.run(["leaderboard", "--judge-clock", "--json", *option, "--db", url]) == 0
        (board,) = json.loads(capfd.readouterr().out)["boards"]
        standing = {s["run"]: s["rank"] for s in board["standings"]}
        assert standing == {"aaaaaaaaaaaa": 1, "cccccccccccc": 1}


def test_a_page_has_the_published_times(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "board.html"
    db = ["--db", _stored(tmp_path, sampled_run())]
    assert cli.run(["leaderboard", "--judge-clock", "--html", str(page), *db]) == 2
    assert "leave out --judge-clock" in capfd.readouterr().err
    assert not page.exists()
