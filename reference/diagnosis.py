"""A guess at the bug behind a wrong answer, by trying known wrong kernels on the same data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from reference.oracle import decode, exact

#: Elements looked at per known wrong kernel; each costs a few float64 operations.
BUDGET = 1 << 21

#: How close the output must come to a known wrong kernel's, relative to it and to the largest
#: output: wider than the task's 1e-3, for such a kernel may also round badly.
CLOSE = 4e-3

ONE = 0x38  # the e4m3 code of 1


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some rows of a case, batch first: codes a [L, R, K/2], b [L, 1, K/2], scales likewise."""

    a: torch.Tensor
    b: torch.Tensor
    sfa: torch.Tensor
    sfb: torch.Tensor


def diagnose(data: tuple[torch.Tensor, ...], got: torch.Tensor) -> str:
    """One line on what `got`, float16 [M, 1, L], looks like, or "" when nothing known fits.

    A wrong kernel fits only where it differs from the truth, so data on which it would have been
    right says nothing about it.
    """
    truth = exact(data).expected.to(torch.float64)[:, 0, :]
    output = got.to(torch.float64)[:, 0, :]
    rows = _some_rows(data)
    seen, right = output[rows].T, truth[rows].T  # [L, R]
    if not output.isfinite().any():
        return "no output is finite: was it written at all?" if truth.isfinite().any() else ""
    if not output.any():
        it = _take(data, rows)
        flushes = truth.any() and not _sums(_without_subnormals(it)).any()
        return "every output is zero" + (", as if subnormal scales were flushed" * bool(flushes))
    for text, wrong in _kernels(data, rows):
        if _fits(seen, wrong(), right):
            return f"it looks as if {text}"
    return _prefix(_take(data, rows), seen, right) or _pattern(truth, output)


def _pattern(truth: torch.Tensor, output: torch.Tensor) -> str:
    """What the outputs alone show; both float64 [M, L]."""
    batches = truth.shape[1]
    if batches > 1 and _fits(output, truth[:, :1].expand_as(truth), truth):
        return "every batch holds the answer of batch 0: is the stride of l used?"
    for shift in (1, -1, 2, -2, 4, -4, 8, -8, 16, -16, 32, -32, 64, -64, 128, -128):
        if _fits(output, truth.roll(-shift, 0), truth):
            return f"every output is that of the row {shift:+d} from it"
    live = truth.isfinite() & output.isfinite() & (truth != 0)
    if live.any():
        ratio = (output[live] / truth[live]).median()
        if ratio != 0 and abs(ratio.item() - 1) > 0.05 and _fits(output, truth * ratio, truth):
            return f"every output is {ratio.item():.4g} times the expected one"
    wrong = (~_close(output, truth)).any(dim=0).nonzero().flatten().tolist()
    if 0 < len(wrong) < batches:
        named = ", ".join(map(str, wrong[:8])) + (", ..." if len(wrong) > 8 else "")
        return f"only these batches l are wrong: {named} (of {batches})"
    return ""


def _kernels(
    data: tuple[torch.Tensor, ...], rows: torch.Tensor
) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    """Known wrong kernels, likeliest first: what it looks like, and its float64 [L, R]."""
    it = _take(data, rows)
    permuted = _storage(data[4], it.sfa.shape[2])[:, rows]
    found = {
        "the high nibble of every byte were ignored": replace(it, a=it.a & 15, b=it.b & 15),
        "the sign bit of e2m1 were ignored": replace(it, a=it.a & 0x77, b=it.b & 0x77),
        "the two nibbles of a byte were swapped": replace(it, a=(it.a >> 4) | (it.a << 4)),
        "the mantissa of the scales were dropped": replace(
            it, sfa=it.sfa & 0xF8, sfb=it.sfb & 0xF8
        ),
        "subnormal scales were flushed to zero": _without_subnormals(it),
        "permuted scales were read in plain order": replace(
            it, sfa=permuted, sfb=_storage(data[5], it.sfb.shape[2])[:, :1]
        ),
        "sfa_permuted were read in plain order": replace(it, sfa=permuted),
        "the scales of a were ignored": replace(it, sfa=torch.full_like(it.sfa, ONE)),
        "the scales of b were ignored": replace(it, sfb=torch.full_like(it.sfb, ONE)),
        "b of batch 0 were used for every batch": replace(
            it, b=it.b[:1].expand_as(it.b), sfb=it.sfb[:1].expand_as(it.sfb)
        ),
    }
    for text, codes in found.items():
        yield text, partial(_sums, codes)


def _some_rows(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Indices of at most 128 rows, spread over all."""
    m, width, batches = data[0].shape
    count = max(4, min(128, m, BUDGET // (2 * width * batches)))
    return torch.linspace(0, m - 1, count, device=data[0].device).round().long()


def _take(data: tuple[torch.Tensor, ...], rows: torch.Tensor) -> _Rows:
    a, b, sfa, sfb = (t.view(torch.uint8).permute(2, 0, 1) for t in data[:4])
    return _Rows(a=a[:, rows], b=b[:, :1], sfa=sfa[:, rows], sfb=sfb[:, :1])


def _storage(tiles: torch.Tensor, columns: int) -> torch.Tensor:
    """The bytes of a permuted scale tensor as if they were plain: [L, rows, columns]."""
    plain = tiles.view(torch.uint8).permute(5, 2, 4, 0, 1, 3)
    return plain.reshape(tiles.shape[5], -1, columns)


def _without_subnormals(it: _Rows) -> _Rows:
    sfa, sfb = (torch.where(s & 0x78 == 0, s & 0x80, s) for s in (it.sfa, it.sfb))
    return replace(it, sfa=sfa, sfb=sfb)


def _block_sums(it: _Rows) -> torch.Tensor:
    """float64 [L, R, K/16]: what each block adds."""
    low = decode(it.a & 15) * decode(it.b & 15)
    high = decode(it.a >> 4) * decode(it.b >> 4)
    products = low + high
    dots = products.view(*products.shape[:2], -1, 8).sum(dim=3)
    sfa, sfb = (s.contiguous().view(torch.float8_e4m3fn).float() for s in (it.sfa, it.sfb))
    return dots.mul_(sfa * sfb).to(torch.float64)


def _sums(it: _Rows) -> torch.Tensor:
    return _block_sums(it).sum(dim=2)


def _prefix(it: _Rows, seen: torch.Tensor, right: torch.Tensor) -> str:
    """Whether the output is the sum of only the first elements of K."""
    sums = _block_sums(it).cumsum(dim=2)
    blocks = sums.shape[2]
    near = _close(seen[:, :, None], sums).all(dim=1).all(dim=0)[: blocks - 1]
    found = near.nonzero().flatten().tolist()
    if not found or not _fits(seen, sums[:, :, found[0]], right):
        return ""
    last = found[0]
    while last + 1 in found:  # blocks that add nothing, as where a scale is zero
        last += 1
    count = f"{16 * (found[0] + 1)}" + (f" to {16 * (last + 1)}" if last > found[0] else "")
    return f"it looks as if only the first {count} of K={16 * blocks} were summed"


def _close(seen: torch.Tensor, wrong: torch.Tensor) -> torch.Tensor:
    finite = wrong.abs().where(wrong.isfinite(), 0.0)
    bound = CLOSE * finite + 1e-3 * finite.amax().clamp(min=1e-3)
    halves = wrong.to(torch.float16).to(torch.float64)  # beyond 65504 the kernel wrote inf
    same = (halves == seen) | (halves.isnan() & seen.isnan())
    return same | ((seen - wrong).abs() <= bound)


def _fits(seen: torch.Tensor, wrong: torch.Tensor, right: torch.Tensor) -> bool:
    """All of `seen` is as the wrong kernel has it, which differs from the truth somewhere."""
    return bool((_close(seen, wrong).all() & ~_close(right, wrong).all()).item())
