"""Outputs + truth + tolerance -> Passed or Failed.  The judge runs it on every call, timed or not.

Everything is compared in float64, on the outputs' own device, with one transfer of a few numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from harness.model import Check, Failed, Passed, Tolerance, Verdict, Worst

#: Elements at a time: a dozen float64 temporaries of this many are 1.6 GB.
CHUNK = 1 << 24

#: Kept apart because float64 cannot hold all of their values.
_WIDE = (torch.int64, torch.uint64)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one chunk amounts to; in the order in which the device sends the numbers."""

    mismatches: float
    nonfinite: float  # those of the mismatches where one side is NaN or infinite
    strict: float
    max_abs: float
    max_rel: float
    max_ulp: float
    excess: float  # of the worst element: |got - expected| - bound, or infinite
    position: float
    expected: float
    got: float
    ulp: float


def compare_layout(got: torch.Tensor, expected: torch.Tensor) -> Failed | None:
    """Whether shape and dtype are the expected ones; strides are free."""
    if type(got) is not torch.Tensor:
        return Failed(Verdict.WRONG_TYPE, f"returned {type(got).__name__}, expected torch.Tensor")
    if got.shape != expected.shape:
        shapes = f"{list(got.shape)}, expected {list(expected.shape)}"
        return Failed(Verdict.WRONG_SHAPE, f"returned shape {shapes}")
    if got.dtype != expected.dtype:
        return Failed(Verdict.WRONG_DTYPE, f"returned {got.dtype}, expected {expected.dtype}")
    return None


def examine_all(
    got: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    *,
    terms: torch.Tensor | None,
    tolerance: Tolerance,
    slack: float | None,
    exact: torch.Tensor | None = None,
) -> Passed | Failed:
    """`examine` for a task of several outputs; the strict tier is for tasks of one."""
    if len(got) != len(expected):
        message = f"returned {len(got)} outputs, expected {len(expected)}"
        return Failed(Verdict.WRONG_TYPE, message)
    single = len(got) == 1
    checks: list[Check] = []
    for index, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        found = examine(
            ours,
            theirs,
            terms=terms if single else None,
            tolerance=tolerance,
            slack=slack if single else None,
            exact=exact if single else None,
        )
        if isinstance(found, Failed):
            return found if single else replace(found, message=f"output {index}: {found.message}")
        checks.append(found.check)
    if not checks:
        return Failed(Verdict.PROTOCOL_ERROR, "nothing was compared: there is no output")
    return Passed(checks[0] if single else _merged(checks))


def examine(
    got: torch.Tensor,
    expected: torch.Tensor,
    *,
    terms: torch.Tensor | None,
    tolerance: Tolerance,
    slack: float | None,
    exact: torch.Tensor | None = None,
) -> Passed | Failed:
    """Compare one output with the truth, any dtype, any strides, both on one device.

    NaN and infinities must be in the same places.  With `slack` and `terms` (sum of |terms|,
    float64) the strict tier counts what is further off than half an ulp plus slack * terms from
    `exact` (float64), or than a whole ulp from `expected` when only the rounded truth is there
    (not at all, when slack is 0): reduced precision, not a failure.
    """
    wrong = compare_layout(got, expected)
    if wrong is not None:
        return wrong
    ours, theirs = _comparable(got), _comparable(expected)
    if ours.numel() == 0:
        return Failed(Verdict.PROTOCOL_ERROR, "nothing was compared: the output has no element")
    strict = None
    if slack is not None and terms is not None:
        strict = _Strict(terms.reshape(-1), None if exact is None else exact.reshape(-1), slack)
    flat_ours, flat_theirs = ours.reshape(-1), theirs.reshape(-1)
    rows = [
        _compare(flat_ours[part], flat_theirs[part], part, strict, tolerance)
        for part in _chunks(ours.numel())
    ]
    parts = [_Part(*row) for row in torch.stack(rows).tolist()]
    check = _summary(parts, ours.shape)
    if check.mismatches == 0:
        return Passed(check)
    nonfinite = int(sum(part.nonfinite for part in parts))
    verdict = Verdict.NONFINITE if nonfinite else Verdict.WRONG_ANSWER
    return Failed(verdict, _message(check, nonfinite), check)


def with_hint(failed: Failed, hint: str) -> Failed:
    """The same failure with a guess at its cause; an empty hint changes nothing."""
    if not hint:
        return failed
    check = None if failed.check is None else replace(failed.check, hint=hint)
    return Failed(failed.verdict, f"{failed.message}; {hint}", check)


@dataclass(frozen=True, slots=True, eq=False)
class _Strict:
    terms: torch.Tensor
    exact: torch.Tensor | None
    slack: float


def _chunks(count: int) -> list[slice]:
    return [slice(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """A view whose elements float64 can take: parts of complex numbers, bytes of packed float4."""
    if tensor.dtype is torch.float4_e2m1fn_x2:
        return tensor.view(torch.uint8)
    if tensor.dtype is torch.complex32:
        tensor = tensor.to(torch.complex64)
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _compare(
    got: torch.Tensor,
    expected: torch.Tensor,
    part: slice,
    strict: _Strict | None,
    tolerance: Tolerance,
) -> torch.Tensor:
    """One chunk's _Part as a float64 vector on the device; no element leaves it."""
    ours, theirs = got.to(torch.float64), expected.to(torch.float64)
    finite = ours.isfinite() & theirs.isfinite()
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    # masked before the subtraction is used: inf - inf is NaN, and NaN passes every `>`
    error = torch.where(finite, ours - theirs, 0.0).abs()
    size = torch.where(finite, theirs, 0.0).abs()
    excess = error - (tolerance.atol + tolerance.rtol * size)
    bad = torch.where(finite, excess > 0, ~same)
    if got.dtype in _WIDE:
        bad |= (got.view(torch.int64) != expected.view(torch.int64)) & (error == 0)
    largest = torch.maximum(torch.where(finite, ours, 0.0).abs(), size)
    ulp = _ulp(largest, expected.dtype)
    ulps = error / ulp
    relative = torch.where(size > 0, error / size, 0.0)
    excess = torch.where(bad & ~finite, torch.inf, excess)
    at = excess.argmax(dim=0, keepdim=True)  # a 0-d index would be fetched to the host
    rough = _rough(strict, part, ours, error, ulp) & finite & ~bad
    found = [
        bad.sum(),
        (bad & ~finite).sum(),
        rough.sum(),
        error.max(),
        relative.max(),
        ulps.max(),
        excess.index_select(0, at),
        at + part.start,
        theirs.index_select(0, at),
        ours.index_select(0, at),
        ulps.index_select(0, at),
    ]
    return torch.stack([value.to(torch.float64).view(()) for value in found])


def _rough(
    strict: _Strict | None,
    part: slice,
    ours: torch.Tensor,
    error: torch.Tensor,
    ulp: torch.Tensor,
) -> torch.Tensor:
    """Where the strict tier is failed: nowhere without one."""
    if strict is None:
        return torch.zeros_like(error, dtype=torch.bool)
    allowed = strict.slack * strict.terms[part]
    if strict.exact is not None:
        return (ours - strict.exact[part]).abs() > 0.5 * ulp + allowed
    return error > (ulp + allowed if strict.slack > 0 else allowed)


def _ulp(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Distance to the next number of `dtype` at finite `values`; 1 for integers and bytes."""
    if not dtype.is_floating_point and not dtype.is_complex or dtype is torch.float4_e2m1fn_x2:
        return torch.ones_like(values)
    info = torch.finfo(dtype)
    # torch 2.13 reports 0.125 for this one, but it has two bits of mantissa
    eps = 0.25 if dtype is torch.float8_e5m2fnuz else info.eps
    exponent = torch.frexp(values.clamp(min=info.smallest_normal)).exponent - 1
    return torch.ldexp(torch.full_like(values, eps), exponent)


def _summary(parts: Sequence[_Part], shape: torch.Size) -> Check:
    # an element that is wrong by NaN has infinite excess, so it is the worst
    worst = max(parts, key=lambda part: part.excess)
    shown = worst.ulp > 0 or worst.mismatches > 0
    return Check(
        elements=math.prod(shape),
        mismatches=int(sum(part.mismatches for part in parts)),
        max_abs=max(part.max_abs for part in parts),
        max_rel=max(part.max_rel for part in parts),
        max_ulp=max(part.max_ulp for part in parts),
        worst=_worst(worst, shape) if shown else None,
        strict_mismatches=int(sum(part.strict for part in parts)),
    )


def _worst(part: _Part, shape: torch.Size) -> Worst:
    position, index = int(part.position), []
    for size in reversed(shape):
        position, rest = divmod(position, size)
        index.append(rest)
    finite = math.isfinite(part.expected) and math.isfinite(part.got)
    # The mask that keeps NaN out of the maxima leaves 0 here, and NaN is not 0 ulp from a number.
    return Worst(tuple(reversed(index)), part.expected, part.got, part.ulp if finite else math.inf)


def _message(check: Check, nonfinite: int) -> str:
    share = 100 * check.mismatches / check.elements
    if check.mismatches < check.elements:
        share = min(share, 99.9)  # 100 is said of all
    text = f"{check.mismatches} of {check.elements} elements are wrong ({share:.3g} %)"
    if nonfinite:
        text += f", {nonfinite} of them NaN or infinite on one side only"
    if check.worst is None:
        return text
    w = check.worst
    off = "" if nonfinite else f", {w.ulp:.4g} ulp off"
    return f"{text}; worst at {list(w.index)}: expected {w.expected:.7g}, got {w.got:.7g}{off}"


def _merged(checks: Sequence[Check]) -> Check:
    worst = max(checks, key=lambda check: check.max_abs)
    return Check(
        elements=sum(check.elements for check in checks),
        mismatches=sum(check.mismatches for check in checks),
        max_abs=worst.max_abs,
        max_rel=max(check.max_rel for check in checks),
        max_ulp=max(check.max_ulp for check in checks),
        worst=worst.worst,
        strict_mismatches=sum(check.strict_mismatches for check in checks),
    )
