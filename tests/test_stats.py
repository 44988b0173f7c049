"""Statistics against hand-computed numbers, numpy, a few properties and simulations of coverage."""

from __future__ import annotations

import math
import random
import statistics
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import stats
from harness.stats import Change, Interval

TIMES = st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=40)


@settings(max_examples=50)
@given(TIMES)
def test_median_mean_std_and_percentile_are_numpys(values: list[float]) -> None:
    assert stats.median(values) == pytest.approx(np.median(values), rel=1e-12)
    assert stats.mean(values) == pytest.approx(np.mean(values), rel=1e-9)
    assert stats.percentile(values, 0.9) == pytest.approx(np.percentile(values, 90), rel=1e-9)
    if len(values) > 1:
        got = stats.sample_std(values)
        assert got == pytest.approx(np.std(values, ddof=1), rel=1e-6, abs=1e-6 * max(values))


def test_one_value_has_no_standard_deviation_and_two_divide_by_one() -> None:
    assert stats.sample_std([1.0]) is None
    assert stats.sample_std([1.0, 1.0, 1.0]) == 0.0
    assert stats.sample_std([1.0, 3.0]) == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize(
    "function", [stats.median, stats.centre_of, stats.mean, stats.geometric_mean]
)
def test_nothing_has_no_average(function: object) -> None:
    with pytest.raises(ValueError):
        function([])  # type: ignore[operator]


def test_the_geometric_mean_of_many_small_times_does_not_underflow() -> None:
    assert stats.geometric_mean([5e-6] * 80) == pytest.approx(5e-6, rel=1e-12)
    assert stats.geometric_mean([5.05e-6] * 80) / stats.geometric_mean([5e-6] * 80) == (
        pytest.approx(1.01)
    )
    assert stats.geometric_mean([1.0, 100.0]) == pytest.approx(10.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_time_is_refused(bad: float) -> None:
    with pytest.raises(ValueError):
        stats.geometric_mean([1.0, bad])
    with pytest.raises(ValueError):
        stats.process_interval([[1.0, bad]])


def test_the_published_statistic_is_the_centre_of_the_processes_medians() -> None:
    got = stats.process_interval([[1, 2, 900], [10, 20, 30], [5, 5, 5]])
    assert got.median == pytest.approx(5.0)
    assert got.low < 5 < got.high


def test_an_even_number_of_samples_has_the_median_that_was_audited() -> None:
    """Not that of the logarithms, by which two claims in turn come to less than their mean."""
    got = stats.process_interval([[2.0, 38.0] * 25] * 5)
    assert got.median == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("values", "centre"),
    [
        ([3.0], 3.0),
        ([1.0, 2.0], 1.5),
        ([1.0, 2.0, 1e9], 2.0),
        ([0.0, 1.0, 2.0, 1e9], 1.5),
        ([0.0, 1.0, 2.0, 3.0, 1e9], 2.0),
        ([-1e9, 0.0, 1.0, 2.0, 3.0, 5.0, 1e9, 1e9], 2.75),
        ([0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1e9, 1e9], 3.0),
    ],
)
def test_the_centre_is_the_mean_of_the_middle_half(values: list[float], centre: float) -> None:
    assert stats.centre_of(values) == centre


@pytest.mark.parametrize("count", [5, 7, 9])
def test_the_centre_is_steadier_than_the_median(count: int) -> None:
    draw = random.Random(3)
    runs = [[draw.gauss(0, 1) for _ in range(count)] for _ in range(2000)]
    centres = statistics.pstdev([stats.centre_of(run) for run in runs])
    assert centres < 0.92 * statistics.pstdev([stats.median(run) for run in runs])


@settings(max_examples=30)
@given(st.lists(TIMES, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_interval_ignores_order_and_scales_with_the_unit(
    blocks: list[list[float]], shuffler: random.Random
) -> None:
    got = stats.process_interval(blocks)
    assert got.low <= got.median <= got.high
    moved = [list(block) for block in blocks]
    shuffler.shuffle(moved)
    for block in moved:
        shuffler.shuffle(block)
    assert stats.process_interval(moved) == pytest.approx(got, rel=1e-9)
    scaled = stats.process_interval([[v * 1000 for v in block] for block in blocks])
    assert scaled == pytest.approx([v * 1000 for v in got], rel=1e-9)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9])
def test_the_exact_bootstrap_error_is_what_drawing_gives(count: int) -> None:
    draw = random.Random(count)
    values = sorted(draw.gauss(0, 1) for _ in range(count))
    drawn = [stats.median(draw.choices(values, k=count)) for _ in range(4000)]
    assert stats._bootstrap_error(values) == pytest.approx(statistics.pstdev(drawn), rel=0.06)


@pytest.mark.parametrize("processes", [1, 2, 3, 5, 10])
def test_the_interval_holds_the_truth_in_at_least_93_of_100_runs(processes: int) -> None:
    draw, hits, runs = random.Random(processes), 0, 300
    for _ in range(runs):
        blocks = []
        for _ in range(processes):
            centre = math.log(20_000) + draw.gauss(0, 0.01)
            blocks.append([math.exp(centre + draw.gauss(0, 0.01)) for _ in range(15)])
        got = stats.process_interval(blocks)
        hits += got.low <= 20_000 <= got.high
    assert hits / runs >= 0.93


def test_equal_readings_of_a_coarse_clock_still_have_an_interval() -> None:
    got = stats.process_interval([[5000.0] * 30] * 3, tick=500)
    assert got.high - 5000 >= 500 / math.sqrt(12)
    assert stats.process_interval([[5000.0] * 30] * 3).high == pytest.approx(5000.0)


def test_a_single_sample_is_bounded_by_a_factor_of_two_or_more() -> None:
    got = stats.process_interval([[100.0]])
    assert got.low <= 50.1 and got.high >= 199.9


def test_one_process_is_given_the_spread_between_processes_that_it_cannot_show() -> None:
    blocks = [[100.0] * 30]
    assert stats.half_width(stats.process_interval(blocks)) == pytest.approx(0.098, abs=1e-4)
    assert stats.half_width(stats.process_interval(blocks, between=0.0)) == 0.0


def test_a_score_combines_shapes_without_pretending_that_they_are_independent() -> None:
    wide = Interval(100.0, 100 / 1.02, 100 * 1.02)
    got = stats.score_interval([wide, Interval(400.0, 400 / 1.04, 400 * 1.04)])
    assert got.median == pytest.approx(200.0)
    assert got.high / got.median == pytest.approx(math.sqrt(1.02 * 1.04))


@pytest.mark.parametrize("shared", [True, False])
def test_a_score_from_process_medians_holds_the_truth_whether_shapes_share_errors(
    shared: bool,
) -> None:
    draw, hits, widths = random.Random(7), 0, []
    for _ in range(300):
        common = [draw.gauss(0, 0.01) for _ in range(5)]
        shapes = [
            [math.exp(common[p] if shared else draw.gauss(0, 0.01)) for p in range(5)]
            for _ in range(3)
        ]
        intervals = [stats.process_interval([[t] * 9 for t in shape]) for shape in shapes]
        got = stats.score_interval(intervals, shapes)
        hits += got.low <= 1 <= got.high
        widths.append(stats.half_width(got))
    assert hits / 300 >= 0.93
    assert stats.mean(widths) < (0.022 if shared else 0.014)


def test_medians_that_do_not_pair_up_fall_back_to_the_wider_interval() -> None:
    wide = Interval(100.0, 98.0, 102.0)
    averaged = stats.score_interval([wide, wide])
    unpaired: list[list[list[float]]]
    unpaired = [[[100.0] * 3], [[100.0] * 3, [100.0] * 2], [[100.0], [100.0]], [[], []]]
    for medians in unpaired:
        assert stats.score_interval([wide, wide], medians) == averaged


def test_separated_needs_more_than_both_noises_and_what_no_run_can_see() -> None:
    a, near = Interval(100.0, 99.9, 100.1), Interval(100.4, 100.3, 100.5)
    assert not stats.separated(a, near)  # 0.4%: clear, but another run may differ by as much
    assert stats.separated(a, Interval(101.0, 100.9, 101.1))
    assert not stats.separated(a, Interval(101.0, 99.0, 103.0))
    assert not stats.separated(Interval(101.0, 100.9, 101.1), a)


def test_a_comparison_has_three_outcomes() -> None:
    draw = random.Random(1)

    def ratios(share: float) -> list[float]:
        return [math.log(share) + draw.gauss(0, 0.002) for _ in range(8)]

    assert stats.compare_ratios(ratios(0.98)).outcome is Change.FASTER
    assert stats.compare_ratios(ratios(1.02)).outcome is Change.SLOWER
    same = stats.compare_ratios(ratios(1.0))
    assert same.outcome is Change.INDISTINGUISHABLE
    assert same.low < 1 < same.high or abs(same.ratio - 1) < 0.005
    tiny = stats.compare_ratios([math.log(1.001)] * 4)
    assert tiny.outcome is Change.INDISTINGUISHABLE and tiny.ratio == pytest.approx(1.001)


@pytest.mark.parametrize("ratios", [[], [0.1], [0.1, math.inf], [0.1, math.nan]])
def test_a_comparison_needs_two_finite_ratios(ratios: list[float]) -> None:
    with pytest.raises(ValueError):
        stats.compare_ratios(ratios)


def test_equal_submissions_compare_as_indistinguishable_95_times_in_100() -> None:
    draw, found = random.Random(5), 0
    for _ in range(400):
        ratios = [draw.gauss(0, 0.02) for _ in range(6)]
        found += stats.compare_ratios(ratios).outcome is not Change.INDISTINGUISHABLE
    assert found / 400 <= 0.075


def test_holm_multiplies_the_smallest_by_the_number_of_tests_and_never_decreases() -> None:
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))
    assert stats.holm([0.9, 0.8]) == (1.0, 1.0)
    assert stats.holm([]) == ()


def test_importing_the_statistics_loads_neither_numpy_nor_scipy_nor_torch() -> None:
    code = "import sys, harness.stats; print({*sys.modules} & {'numpy', 'scipy', 'torch'})"
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert got.stdout.strip() == "set()"


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 8, 9, 29, 30, 119, 599])
def test_students_quantile_is_scipys(freedom: int) -> None:
    from scipy.special import stdtrit

    assert stats._t_quantile(freedom) == pytest.approx(float(stdtrit(freedom, 0.975)), rel=1e-9)
