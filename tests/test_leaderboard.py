"""Who stands where: tables of hand-made runs, and simulated boards whose truth is known."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import simulate_ranking
from harness import stats
from harness.leaderboard import Place, boards, ineligible, place, summarise
from harness.model import (
    Board,
    CaseKind,
    Doubt,
    Mode,
    Passed,
    Run,
    ShapeStanding,
    Standing,
    Verdict,
)
from tests.fakes import CPU, SHAPES, make_failure, make_run, make_shape, make_task


def board(*runs: Run, **options: object) -> Board:
    (only,) = boards([summarise(run) for run in runs], **options)  # type: ignore[arg-type]
    return only


def order(made: Board) -> list[tuple[int, str]]:
    return [(s.rank, s.submission) for s in made.standings]


# Who may stand


def test_a_ranked_run_that_passed_everything_is_eligible() -> None:
    assert ineligible(make_run()) is None
    assert ineligible(make_run(), SHAPES) is None


@pytest.mark.parametrize("verdict", [v for v in Verdict if v is not Verdict.PASSED])
def test_every_other_verdict_is_not(verdict: Verdict) -> None:
    assert ineligible(make_run(verdict=verdict)) == verdict


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (make_run(mode=Mode.BENCHMARK), "mode benchmark"),
        (make_run(mode=Mode.TEST), "mode test"),
        (make_run(custom_shapes=True), "shapes of its own"),
        (make_run(doubts=[Doubt.EMULATED]), "emulated"),
        (make_run(doubts=[Doubt.NOISY, Doubt.ROOT_WORKER]), "root worker"),
        (make_run(doubts=[Doubt.SHARED_GPU]), "shared gpu"),
        (make_run(failures=[make_failure(SHAPES[0], Verdict.CRASHED, "")]), "1 cases did not pass"),
        (make_run(times_us=(20, 40)), "no time for 7168x2048x4"),
        (make_run(times_us=(1, 1, 1, 1), shapes=(*SHAPES, make_shape(1, 1, 1))), "other shapes"),
        (make_run(times_us=()), "no time for"),
        (make_run(score_ns=None), "score is not"),
        (make_run(score_ns=15_000.0), "does not follow"),
    ],
)
def test_what_is_incomplete_or_unsure_is_not_and_says_why(run: Run, reason: str) -> None:
    assert reason in (ineligible(run, SHAPES) or "")


def test_doubts_that_only_ask_for_care_do_not_unrank() -> None:
    assert ineligible(make_run(doubts=[Doubt.NOISY, Doubt.BUDGET, Doubt.REDUCED_PRECISION])) is None


def test_a_run_whose_tests_never_ran_is_not_eligible() -> None:
    run = make_run()
    timed = tuple(c for c in run.cases if c.case.kind is CaseKind.BENCHMARK)
    assert ineligible(dataclasses.replace(run, cases=timed)) == "no test case was checked"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e-320, 1e-6, 1e19])
@pytest.mark.parametrize("field", ["median_ns", "low_ns", "high_ns"])
def test_one_impossible_time_unranks_the_run_and_cannot_lead(field: str, bad: float) -> None:
    run = make_run("cheat", score_ns=1.0)
    *rest, last = run.cases
    assert last.timing is not None and isinstance(last.outcome, Passed)
    timing = dataclasses.replace(last.timing, **{field: bad})  # type: ignore[arg-type]
    outcome = dataclasses.replace(last.outcome, timing=timing)
    run = dataclasses.replace(run, cases=(*rest, dataclasses.replace(last, outcome=outcome)))
    assert ineligible(run) is not None
    assert order(board(run, make_run("honest"))) == [(1, "honest")]


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e-320, None])
@pytest.mark.parametrize("field", ["score_ns", "low_ns", "high_ns"])
def test_a_summary_with_an_impossible_score_has_no_rank(field: str, score: float | None) -> None:
    row = dataclasses.replace(summarise(make_run("broken")), **{field: score})  # type: ignore[arg-type]
    made = boards([row, summarise(make_run("honest"))])[0]
    assert order(made) == [(1, "honest")]
    assert [u.submission for u in made.unranked] == ["broken"]


# Ranks


def test_clear_differences_are_ranked_by_score() -> None:
    made = board(
        make_run("slow", times_us=(30, 60, 15)),
        make_run("fast"),
        make_run("middle", times_us=(25, 50, 12)),
    )
    assert order(made) == [(1, "fast"), (2, "middle"), (3, "slow")]
    assert [(s.rank_low, s.rank_high) for s in made.standings] == [(1, 1), (2, 2), (3, 3)]


def test_entries_within_noise_share_a_rank_in_the_order_of_their_scores() -> None:
    """Whoever is older, which reads as a fault of sorting."""
    made = board(
        make_run("faster", times_us=(20, 40, 10), created=9, noise=0.01),
        make_run("earlier", times_us=(20.1, 40.2, 10.05), created=1, noise=0.01),
        make_run("far", times_us=(30, 60, 15)),
    )
    assert order(made) == [(1, "faster"), (1, "earlier"), (3, "far")]
    assert made.standings[0].rank_high == 2


def test_noise_of_ones_own_buys_no_rank() -> None:
    """Nor does a noisy leader lose its company: whose time may be as short shares its rank."""
    erratic = make_run("erratic", times_us=(40, 80, 20), noise=0.9, created=1)
    good = make_run("good", created=2)
    honest = make_run("honest", times_us=(30, 60, 15), created=3)
    (board,) = boards([summarise(run) for run in (erratic, good, honest)])
    assert [(s.submission, s.rank) for s in board.standings] == [
        ("good", 1), ("honest", 2), ("erratic", 3)
    ]  # fmt: skip
    assert [(s.rank_low, s.rank_high) for s in board.standings] == [(1, 2), (2, 3), (1, 3)]
    unsure = make_run("unsure", times_us=(19, 38, 9.5), noise=0.1, created=4)
    (board,) = boards([summarise(run) for run in (unsure, good)])
    assert [(s.submission, s.rank) for s in board.standings] == [("unsure", 1), ("good", 1)]


def test_a_shared_rank_does_not_chain() -> None:
    times = [20.0, 20.24, 20.48]  # each 1.2% apart, noise 1%: neighbours tie, the ends do not
    made = board(*(make_run(f"s{i}", times_us=(t, t, t), noise=0.01) for i, t in enumerate(times)))
    assert order(made) == [(1, "s0"), (1, "s1"), (2, "s2")]  # one is ahead of s2, not two
    assert [(s.rank_low, s.rank_high) for s in made.standings] == [(1, 2), (1, 3), (2, 3)]


def test_a_decoys_noise_buys_nobody_a_rank() -> None:
    """A second entry of dave's, placed behind the first by an erratic clock, tied him with all."""
    times = {"alice": 43.8, "bob": 55.1, "carol": 66.0, "dave": 82.0}
    runs = [make_run(name, times_us=(t, t, t), noise=0.037) for name, t in times.items()]
    before = {s.submission: s.rank for s in board(*runs).standings}
    assert before == {"alice": 1, "bob": 2, "carol": 3, "dave": 4}
    decoy = make_run("decoy", times_us=(48.2, 48.2, 48.2), noise=1.85)
    after = {s.submission: s.rank for s in board(*runs, decoy).standings}
    assert after == {**before, "decoy": 2}


#: Scores from a few steps, so that ties and chains of them are common, and noise of every size.
ENTRY = st.tuples(st.integers(0, 30), st.sampled_from([0.001, 0.004, 0.01, 0.03, 0.1, 0.5, 2.0]))


def ranked(entries: list[tuple[int, float]]) -> list[Standing]:
    """A board's standings in the order of `entries`: (steps of 0.7% from the first, noise)."""
    rows = []
    for i, (step, noise) in enumerate(entries):
        score = 20_000 * math.exp(0.007 * step)
        shape = ShapeStanding(SHAPES[0], score, score, score, None)
        rows.append(
            dataclasses.replace(
                summarise(make_run(f"s{i}", id=f"{i:02}")),
                score_ns=score,
                low_ns=score * math.exp(-noise),
                high_ns=score * math.exp(noise),
                shapes=(shape,),
            )
        )
    (made,) = boards(rows)
    return sorted(made.standings, key=lambda s: s.run)


@given(st.lists(ENTRY, min_size=1, max_size=8), ENTRY)
def test_an_entry_that_is_added_moves_others_only_by_being_ahead_of_them(
    entries: list[tuple[int, float]], added: tuple[int, float]
) -> None:
    before = ranked(entries)
    *after, new = ranked([*entries, added])
    for (_, noise), old, now in zip(entries, before, after, strict=True):
        moved = now.rank - old.rank
        assert moved >= 0  # nobody gains by another's entry
        if now.score_ns < new.score_ns:
            assert moved == 0  # nor loses by a slower one
        elif noise <= added[1]:
            assert moved <= 1  # nor by more than its being one more
            assert moved == 0 or now.rank > new.rank  # which it is only where it is ahead
        else:
            assert now.rank <= max(old.rank + 1, new.rank + 1)


@given(st.lists(ENTRY, min_size=2, max_size=8))
def test_ranks_follow_the_scores_and_what_shares_one_is_within_noise(
    entries: list[tuple[int, float]],
) -> None:
    made = sorted(ranked(entries), key=lambda s: s.score_ns)
    assert made[0].rank == 1
    for a, b in itertools.combinations(made, 2):
        assert a.rank <= b.rank or a.score_ns == b.score_ns
        if a.rank == b.rank:
            assert not _separated(a, b)


@given(st.lists(ENTRY, min_size=1, max_size=8), st.sampled_from([2.0, 5.0, 9.0]))
def test_more_noise_than_2_percent_betters_no_rank(
    entries: list[tuple[int, float]], factor: float
) -> None:
    *others, (step, noise) = entries
    noise = min(max(noise, 0.02), 0.5)
    *_, calm = ranked([*others, (step, noise)])
    *_, noisy = ranked([*others, (step, noise * factor)])
    faster = [other for other in others if other[0] <= step]
    if all(other[1] <= noise for other in faster):
        assert noisy.rank == calm.rank


def test_two_runs_1_percent_apart_with_80_tiny_shapes_are_ranked_apart() -> None:
    shapes = tuple(make_shape(128 * (i + 1), 64, 1) for i in range(80))
    made = board(
        make_run("b", times_us=(5.05,) * 80, shapes=shapes, noise=0.001),
        make_run("a", times_us=(5.0,) * 80, shapes=shapes, noise=0.001),
    )
    assert order(made) == [(1, "a"), (2, "b")]
    assert made.standings[0].score_ns == pytest.approx(5000)


def test_the_order_of_the_rows_does_not_matter() -> None:
    runs = [make_run(f"s{i}", id=f"r{i}", times_us=(20 + i % 3,) * 3, noise=0.01) for i in range(6)]
    rows = [summarise(run) for run in runs]
    expected = boards(rows)
    for seed in range(10):
        shuffled = random.Random(seed).sample(rows, len(rows))
        assert boards(shuffled) == expected


def test_ranks_lie_within_their_ranges_and_grow_with_the_position() -> None:
    draw = random.Random(4)
    runs = [
        make_run(f"s{i}", id=f"r{i}", times_us=(20 * draw.uniform(1, 1.1),) * 3,
                 noise=draw.uniform(0.001, 0.03))
        for i in range(40)
    ]  # fmt: skip
    standings = board(*runs).standings
    assert all(s.rank_low <= s.rank <= s.rank_high for s in standings)
    assert all(a.rank <= b.rank for a, b in itertools.pairwise(standings))
    slow = {s.run: s for s in standings}
    for s in standings:  # the quick search for the range against the plain definition
        ahead = sum(_separated(slow[o.run], s) for o in standings if o is not s)
        behind = sum(_separated(s, slow[o.run]) for o in standings if o is not s)
        assert s.rank_low == min(1 + ahead, s.rank)
        assert s.rank_high == max(len(standings) - behind, s.rank)


def _separated(a: Standing, b: Standing) -> bool:
    first, second = (stats.Interval(s.score_ns, s.low_ns, s.high_ns) for s in (a, b))
    return stats.separated(first, second)


# Which run stands


def test_the_latest_eligible_run_stands_and_the_others_are_shown_with_their_reason() -> None:
    made = board(
        make_run("k", id="best", created=1, times_us=(10, 20, 5)),
        make_run("k", id="now", created=2),
        make_run(
            "k",
            id="crash",
            created=3,
            verdict=Verdict.CRASHED,
            message="signal SIGSEGV",
            sha256="cd" * 32,
        ),
        make_run("k", id="other", created=0, author="bob", times_us=(9, 9, 9)),
    )
    assert [s.run for s in made.standings] == ["other", "now"]
    assert [(u.run, u.reason) for u in made.unranked] == [
        ("crash", "signal SIGSEGV"),
        ("best", "superseded by now"),
    ]


@pytest.mark.parametrize(
    ("later", "stands"),
    [
        (make_run("k", id="later", verdict=Verdict.IMPORT_ERROR), False),
        # Each of which a submission can bring about by itself.
        (make_run("k", id="later", verdict=Verdict.UNSUPPORTED), False),
        (make_run("k", id="later", verdict=Verdict.TIMED_OUT), False),
        (make_run("k", id="later", doubts=[Doubt.EMULATED]), False),
        # Of another text, entrant, device, task or purpose; by the machine's fault; unsigned.
        (make_run("k", id="later", verdict=Verdict.CRASHED, sha256="cd" * 32), True),
        (make_run("k", id="later", verdict=Verdict.CRASHED, author="bob"), True),
        (make_run("k2", id="later", verdict=Verdict.CRASHED), True),
        (make_run("k", id="later", verdict=Verdict.CRASHED, digest="0" * 64), True),
        (make_run("k", id="later", verdict=Verdict.CRASHED, mode=Mode.TEST), True),
        (make_run("k", id="later", verdict=Verdict.CRASHED, custom_shapes=True), True),
        (make_run("k", id="later", verdict=Verdict.CRASHED, doubts=[Doubt.SHARED_GPU]), True),
        (make_run("k", id="later", verdict=Verdict.CRASHED, doubts=[Doubt.UNSIGNED_IMPORT]), True),
        (make_run("k", id="later", doubts=[Doubt.SHARED_GPU]), True),
    ],
)  # fmt: skip
def test_a_file_that_fails_when_it_is_measured_again_stands_no_longer(
    later: Run, stands: bool
) -> None:
    """It had made itself immune: whoever was lucky once had only to raise from then on."""
    later = dataclasses.replace(later, created_ns=later.created_ns + 10**9)
    made = board(make_run("k", id="lucky"), make_run("honest", id="honest"), later)
    assert ("lucky" in [s.run for s in made.standings]) == stands
    if not stands:
        (gone,) = (u for u in made.unranked if u.run == "lucky")
        assert gone.reason == "the same file did not pass in later"
    again = dataclasses.replace(later, created_ns=later.created_ns - 2 * 10**9)
    made = board(make_run("k", id="lucky"), again)
    assert "lucky" in [s.run for s in made.standings]  # which passed after it had failed


def test_what_nobody_vouches_for_replaces_nothing_that_was_made_here_or_is_signed() -> None:
    """A slow run in the rival's name, from a file that anybody can write, took his standing."""
    forged = make_run("k", id="forged", created=9, times_us=(100, 200, 50),
                      doubts=[Doubt.UNSIGNED_IMPORT])  # fmt: skip
    made = board(make_run("k", id="own", created=1), forged)
    assert [s.run for s in made.standings] == ["own"]
    assert [(u.run, u.reason) for u in made.unranked] == [
        ("forged", "nobody vouches for it, and own was made here or is signed")
    ]
    newer = make_run("k", id="newer", created=12, doubts=[Doubt.UNSIGNED_IMPORT])
    made = board(forged, newer)
    assert [(s.run, s.doubts) for s in made.standings] == [("newer", (Doubt.UNSIGNED_IMPORT,))]
    assert [u.reason for u in made.unranked] == ["superseded by newer"]


def test_what_nobody_vouches_for_chooses_no_version_of_the_task() -> None:
    """An invented digest with a newer date emptied a board that was read without the task."""
    honest = make_run("honest", created=1)
    forged = make_run("k", id="forged", created=9, digest="f" * 64,
                      doubts=[Doubt.UNSIGNED_IMPORT])  # fmt: skip
    assert order(board(honest, forged)) == [(1, "honest")]
    assert order(board(forged)) == [(1, "k")]  # where there is nothing else


def test_another_version_of_the_task_is_not_ranked_beside_this_one() -> None:
    old = make_run("old", digest="0" * 64, times_us=(1, 1, 1), created=1)
    new = make_run("new", created=2)
    made = board(old, new)
    assert order(made) == [(1, "new")]
    assert made.unranked[0].reason == "another version of the task"
    given = board(old, new, task=make_task(digest="0" * 64))
    assert order(given) == [(1, "old")]


def test_a_task_that_gained_a_shape_ranks_no_run_without_it() -> None:
    task = make_task(shapes=(*SHAPES, make_shape(256, 256, 1)))
    made = board(make_run(), task=task)
    assert not made.standings and made.unranked[0].reason == "no time for 256x256x1"


def test_a_run_without_all_of_the_tasks_test_cases_is_not_ranked() -> None:
    task = make_task()
    more = dataclasses.replace(task, tests=(*task.tests, *task.tests))
    assert board(make_run(), task=task).standings
    made = board(make_run(), task=more)
    assert not made.standings
    assert made.unranked[0].reason == "1 of the task's 2 test cases were checked"


def test_cpu_and_gpu_and_tasks_never_share_a_board() -> None:
    runs = [
        make_run("a"),
        make_run("b", device=CPU),
        make_run("c", device=dataclasses.replace(CPU, kind="cuda")),
        make_run("d", task="other"),
    ]
    made = boards([summarise(run) for run in runs])
    assert [(b.task, b.device) for b in made] == [
        ("nvfp4_gemv", "AMD EPYC 9554"),
        ("nvfp4_gemv", "NVIDIA H200"),
        ("nvfp4_gemv", "AMD EPYC 9554"),
        ("other", "NVIDIA H200"),
    ]
    assert all(len(b.standings) == 1 for b in made)


def test_no_runs_make_no_boards() -> None:
    assert boards([]) == ()


# What a standing says


def test_speedup_is_the_baselines_score_over_ones_own_and_only_the_baselines() -> None:
    made = board(
        make_run("torch_dequant", author="baseline", times_us=(40, 80, 20)),
        make_run("torch_dequant", author="impostor", times_us=(4000, 8000, 2000)),
        make_run("fast"),
    )
    speedups = {s.author: s.speedup for s in made.standings}
    assert speedups["ada"] == pytest.approx(2.0)
    assert speedups["baseline"] == pytest.approx(1.0)
    assert board(make_run("fast")).standings[0].speedup is None


def test_floor_and_light_speed_are_geometric_means_or_unknown() -> None:
    standing = board(make_run(floor=0.5)).standings[0]
    assert standing.floor_share == pytest.approx(0.5)
    light = (8.622 / 20 * 17.275 / 40 * 4.317 / 10) ** (1 / 3)
    assert standing.light_speed == pytest.approx(light)
    assert board(make_run(floor=None)).standings[0].floor_share is None


def test_a_scores_interval_is_as_wide_as_its_shapes_on_average() -> None:
    standing = board(make_run(noise=0.01)).standings[0]
    assert math.log(standing.high_ns / standing.low_ns) / 2 == pytest.approx(0.01)


def test_a_runs_place_is_its_standing_among_the_entries_of_its_board() -> None:
    made = (
        board(
            make_run("twin", author="ada", times_us=(1.0, 2.0, 3.0), id="a"),
            make_run("twin", author="bob", times_us=(2.0, 4.0, 6.0), id="b"),
            make_run("other", times_us=(4.0, 8.0, 12.0), id="c"),
            make_run("other", verdict=Verdict.CRASHED, id="d", sha256="cd" * 32),
        ),
    )
    where = place(made, "b")
    assert where.standing is not None and where.standing.rank == 2
    assert where.of == 3 and where.has_namesake
    assert not place(made, "c").has_namesake
    assert place(made, "d") == Place()


# Simulations (issue 6): the truth is known


@pytest.fixture(scope="module")
def outcome() -> simulate_ranking.Outcome:
    return simulate_ranking.simulate(boards=40, seed=1)


def test_equals_are_put_in_a_strict_order_in_at_most_5_percent_of_pairs(
    outcome: simulate_ranking.Outcome,
) -> None:
    assert outcome.wrong_order <= 0.05


def test_a_real_2_percent_difference_is_found_in_at_least_95_percent(
    outcome: simulate_ranking.Outcome,
) -> None:
    assert outcome.found >= 0.95


def test_the_incumbents_rule_orders_almost_every_pair_of_equals(
    outcome: simulate_ranking.Outcome,
) -> None:
    assert outcome.incumbent_wrong_order >= 0.5
