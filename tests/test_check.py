"""Comparison of outputs: what passes, what does not, and what the message says."""

from __future__ import annotations

import math

import pytest
import torch

from harness import check
from harness.model import Check, Failed, Passed, Tolerance, Verdict

TOLERANCE = Tolerance(rtol=1e-3, atol=1e-3)
NONE = Tolerance(rtol=0.0, atol=0.0)

FLOATS = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]
INTEGERS = [
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.uint32,
    torch.int64,
    torch.uint64,
    torch.bool,
]


def examine(
    got: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance = TOLERANCE
) -> Passed | Failed:
    return check.examine(got, expected, terms=None, tolerance=tolerance, slack=None)


def failed(found: Passed | Failed) -> tuple[Verdict, Check]:
    assert isinstance(found, Failed) and found.check is not None, found
    return found.verdict, found.check


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.float8_e8m0fnu], ids=str)
def test_equal_outputs_of_every_dtype_pass_and_one_wrong_element_fails(dtype: torch.dtype) -> None:
    expected = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0]).to(dtype).view(2, 3)
    found = examine(expected.clone(), expected, NONE)
    assert isinstance(found, Passed)
    assert (found.check.elements, found.check.max_abs, found.check.worst) == (6, 0, None)
    got = expected.clone()
    got.view(-1)[4:5] = torch.tensor([1.0]).to(dtype)
    verdict, result = failed(examine(got, expected, NONE))
    assert verdict is Verdict.WRONG_ANSWER and result.mismatches == 1
    assert result.worst is not None and result.worst.index == (1, 1)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_fails_in_every_float_that_has_one(dtype: torch.dtype) -> None:
    expected = torch.ones(4).to(dtype)
    got = torch.tensor([1.0, 1.0, math.nan, 1.0]).to(dtype)
    verdict, result = failed(examine(got, expected))
    assert verdict is Verdict.NONFINITE and result.mismatches == 1
    assert result.worst is not None and result.worst.index == (2,)
    assert math.isnan(result.worst.got)
    assert isinstance(examine(got, got.clone()), Passed)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_one_step_is_one_ulp(dtype: torch.dtype) -> None:
    # codes of positive floats are in the order of their values
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    expected = torch.tensor([1.0, 1.5, 4.0, 0.25]).to(dtype)
    got = (expected.view(integer) + 1).view(dtype)
    found = examine(got, expected, Tolerance(rtol=1.0, atol=0.0))
    assert isinstance(found, Passed) and found.check.max_ulp == 1.0


def test_ulp_of_subnormals_is_the_smallest_step() -> None:
    expected = torch.tensor([0.0, 2.0**-24], dtype=torch.float16)
    got = torch.tensor([2.0**-23, 2.0**-24], dtype=torch.float16)
    found = examine(got, expected)
    assert isinstance(found, Passed) and found.check.max_ulp == 2.0


def test_float8_off_by_one_code_follows_the_tolerance() -> None:
    expected = torch.full((100,), 1.0).to(torch.float8_e4m3fn)
    got = expected.clone()
    got.view(torch.uint8)[7] += 1  # 1.125
    assert isinstance(examine(got, expected, Tolerance(0.2, 0.0)), Passed)
    verdict, result = failed(examine(got, expected, Tolerance(0.1, 0.0)))
    assert verdict is Verdict.WRONG_ANSWER and result.mismatches == 1


def test_packed_float4_is_compared_byte_by_byte() -> None:
    bytes_ = torch.arange(16, dtype=torch.uint8)
    expected = bytes_.view(torch.float4_e2m1fn_x2)
    assert isinstance(examine(bytes_.clone().view(torch.float4_e2m1fn_x2), expected), Passed)
    other = (bytes_ ^ 8).view(torch.float4_e2m1fn_x2)
    assert failed(examine(other, expected))[1].mismatches == 16


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_numbers_are_compared_by_parts(dtype: torch.dtype) -> None:
    expected = torch.tensor([1 + 2j, 3 - 1j], dtype=dtype)
    assert isinstance(examine(expected.clone(), expected), Passed)
    _, result = failed(examine(expected.conj(), expected))
    assert result.mismatches == 2 and result.worst is not None
    assert result.worst.index == (0, 1)


def test_large_integers_that_float64_confuses_differ() -> None:
    expected = torch.tensor([2**60, 5])
    _, result = failed(examine(expected + torch.tensor([1, 0]), expected, NONE))
    assert result.mismatches == 1
    found = examine((expected + 1).to(torch.uint64), expected.to(torch.uint64), NONE)
    assert failed(found)[1].mismatches == 2


def test_the_tolerance_is_the_tasks() -> None:
    expected = torch.ones(3)
    got = expected + 5e-3
    assert isinstance(examine(got, expected, Tolerance(0.0, 1e-2)), Passed)
    assert isinstance(examine(got, expected, Tolerance(1e-2, 0.0)), Passed)
    assert isinstance(examine(got, expected, Tolerance(0.0, 1e-4)), Failed)
    assert isinstance(examine(got, expected, NONE), Failed)


def test_the_tolerance_is_relative_to_the_expected_value() -> None:
    expected, got = torch.tensor([100.0]), torch.tensor([111.0])
    assert isinstance(examine(got, expected, Tolerance(0.1, 0.0)), Failed)
    assert isinstance(examine(expected, got, Tolerance(0.1, 0.0)), Passed)


def test_the_bound_is_not_rounded_to_the_outputs_dtype() -> None:
    # in float16 the difference 4.11 would round to 4.11 and the bound 4.097 to 4.098
    expected = torch.tensor([4096.0], dtype=torch.float16)
    assert isinstance(examine(expected + 4, expected), Passed)
    assert isinstance(examine(expected + 8, expected), Failed)


def test_infinities_must_agree_in_place_and_sign() -> None:
    inf = math.inf
    expected = torch.tensor([1.0, inf, -inf, 2.0], dtype=torch.float16)
    assert isinstance(examine(expected.clone(), expected), Passed)
    for got in ([1.0, -inf, -inf, 2.0], [1.0, 65504.0, -inf, 2.0], [inf, inf, -inf, 2.0]):
        wrong = examine(torch.tensor(got, dtype=torch.float16), expected)
        verdict, result = failed(wrong)
        assert verdict is Verdict.NONFINITE and result.mismatches == 1


def test_nan_where_infinity_is_expected_fails() -> None:
    expected, got = torch.tensor([math.inf, 1.0]), torch.tensor([math.nan, 1.0])
    assert failed(examine(got, expected))[0] is Verdict.NONFINITE
    assert failed(examine(expected, got))[0] is Verdict.NONFINITE


def test_negative_zero_equals_zero() -> None:
    expected = torch.tensor([0.0, -0.0])
    found = examine(-expected, expected, NONE)
    assert isinstance(found, Passed) and found.check.max_ulp == 0


def test_a_finite_and_an_infinite_error_together_are_nonfinite_and_counted() -> None:
    expected = torch.tensor([1.0, 2.0, 3.0, 4.0])
    got = torch.tensor([1.0, math.nan, 30.0, 4.0])
    verdict, result = failed(examine(got, expected))
    assert verdict is Verdict.NONFINITE and result.mismatches == 2
    assert result.max_abs == 27.0  # over the finite ones
    assert result.worst is not None and result.worst.index == (1,)
    assert result.worst.ulp == math.inf  # 0 would say that NaN was right


def test_nothing_is_not_a_pass() -> None:
    empty = torch.empty(0, 3)
    found = examine(empty, empty.clone())
    assert isinstance(found, Failed) and "no element" in found.message
    none = check.examine_all([], [], terms=None, tolerance=TOLERANCE, slack=None)
    assert isinstance(none, Failed)


def test_a_scalar_has_an_empty_index() -> None:
    _, result = failed(examine(torch.tensor(2.0), torch.tensor(1.0)))
    assert result.worst is not None and result.worst.index == ()
    assert isinstance(examine(torch.tensor(2.0), torch.tensor(2.0)), Passed)


def test_strides_are_free_and_the_index_is_logical() -> None:
    expected = torch.arange(24.0).view(2, 3, 4)
    got = expected.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    assert got.stride() != expected.stride() and isinstance(examine(got, expected), Passed)
    got[1, 2, 3] += 1
    assert "worst at [1, 2, 3]: expected 23, got 24" in failure_text(examine(got, expected))


def failure_text(found: Passed | Failed) -> str:
    assert isinstance(found, Failed)
    return found.message


def test_the_message_counts_and_shows_the_worst() -> None:
    expected = torch.full((8, 1, 2), 12.5, dtype=torch.float16)
    got = expected.clone()
    got[3, 0, 1] = 13.25
    got[4, 0, 0] = 12.75
    text = failure_text(examine(got, expected))
    assert text == (
        "2 of 16 elements are wrong (12.5 %); worst at [3, 0, 1]: "
        "expected 12.5, got 13.25, 96 ulp off"
    )


@pytest.mark.parametrize(("right", "share"), [(0, "100 %"), (1, "99.9 %")])
def test_all_elements_are_wrong_only_where_none_is_right(right: int, share: str) -> None:
    expected = torch.ones(8448)
    got = torch.zeros(8448)
    got[:right] = 1
    assert f"({share})" in failure_text(examine(got, expected))


def test_the_worst_is_the_one_furthest_outside_its_own_bound() -> None:
    expected = torch.tensor([10_000.0, 0.0])
    got = torch.tensor([10_009.0, 0.5])  # larger, but within its bound of 10
    _, result = failed(examine(got, expected))
    assert result.worst is not None and result.worst.index == (1,) and result.max_abs == 9.0


@pytest.mark.parametrize("size", [1, 10, 11, 25])
def test_chunks_change_nothing(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = torch.linspace(1, 2, 25).view(5, 5)
    got = expected.clone()
    got[3, 1] += 0.5
    got[0, 2] += 0.25
    terms = torch.ones(25, dtype=torch.float64)
    whole = check.examine(got, expected, terms=terms, tolerance=TOLERANCE, slack=1e-9)
    monkeypatch.setattr(check, "CHUNK", size)
    assert check.examine(got, expected, terms=terms, tolerance=TOLERANCE, slack=1e-9) == whole


class Loud(torch.Tensor):
    """A subclass that would answer every comparison itself."""


def test_layouts_are_compared_by_name() -> None:
    expected = torch.zeros(2, 3)
    wrong = {
        Verdict.WRONG_SHAPE: torch.zeros(3, 2),
        Verdict.WRONG_DTYPE: torch.zeros(2, 3, dtype=torch.float64),
        Verdict.WRONG_TYPE: torch.zeros(2, 3).as_subclass(Loud),
    }
    texts = ("[3, 2], expected [2, 3]", "torch.float64, expected torch.float32", "Loud, expected")
    for (verdict, got), text in zip(wrong.items(), texts, strict=True):
        found = examine(got, expected)
        assert isinstance(found, Failed) and found.verdict is verdict and text in found.message


def test_several_outputs_are_all_compared() -> None:
    a, b = torch.ones(3), torch.zeros(2, dtype=torch.int32)

    def run(*got: torch.Tensor) -> Passed | Failed:
        return check.examine_all(got, [a, b], terms=None, tolerance=TOLERANCE, slack=None)

    good = run(a.clone(), b.clone())
    assert isinstance(good, Passed) and good.check.elements == 5
    second = run(a.clone(), b + 1)
    assert isinstance(second, Failed) and second.message.startswith("output 1: 2 of 2")
    for got in ((a,), (a, b, b)):
        missing = run(*got)
        assert isinstance(missing, Failed) and "expected 2" in missing.message


def strict(
    got: float, expected: float, *, slack: float, terms: float, exact: float | None = None
) -> int:
    found = check.examine(
        torch.tensor([got], dtype=torch.float16),
        torch.tensor([expected], dtype=torch.float16),
        terms=torch.tensor([terms], dtype=torch.float64),
        exact=None if exact is None else torch.tensor([exact], dtype=torch.float64),
        tolerance=TOLERANCE,
        slack=slack,
    )
    assert isinstance(found, Passed), found
    return found.check.strict_mismatches


def test_the_strict_tier_allows_half_an_ulp_and_a_share_of_the_terms() -> None:
    ulp = 2.0**-10  # at 1
    assert strict(1.0, 1.0, slack=0.0, terms=1.0, exact=1.0 + 0.5 * ulp) == 0
    assert strict(1.0 + ulp, 1.0, slack=0.0, terms=1.0, exact=1.0 + 0.4 * ulp) == 1
    assert strict(1.0 + ulp, 1.0, slack=1e-3, terms=0.2, exact=1.0 + 0.4 * ulp) == 0
    assert strict(1.0 + ulp, 1.0, slack=1e-3, terms=0.01, exact=1.0 + 0.4 * ulp) == 1


def test_the_strict_tier_without_the_exact_sum_allows_an_ulp() -> None:
    ulp = 2.0**-10
    assert strict(1.0 + ulp, 1.0, slack=0.0, terms=1.0) == 1
    assert strict(1.0 + ulp, 1.0, slack=1e-9, terms=1.0) == 0
    assert strict(1.0 + 2 * ulp, 1.0, slack=1e-9, terms=1.0) == 1


def test_no_strict_tier_counts_nothing() -> None:
    found = examine(torch.tensor([1.001]), torch.tensor([1.0]))
    assert isinstance(found, Passed) and found.check.strict_mismatches == 0


def test_a_hint_joins_message_and_check_and_an_empty_one_does_not() -> None:
    found = examine(torch.tensor([2.0]), torch.tensor([1.0]))
    assert isinstance(found, Failed)
    assert check.with_hint(found, "") == found
    hinted = check.with_hint(found, "rows shifted")
    assert hinted.message.endswith("; rows shifted")
    assert hinted.check is not None and hinted.check.hint == "rows shifted"
