"""The exact answer from the uint8 codes: no FP4 hardware, any device, one rounding."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

#: e2m1 magnitudes by code; bit 3 is the sign.
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)

#: Bytes of a per chunk.  CPU: the temporaries (12 bytes each) fit a cache.  GPU: few launches, at
#: most 1 GB of temporaries.
CHUNK_CPU = 1 << 20
CHUNK_GPU = 1 << 25


@dataclass(frozen=True, slots=True)
class Truth:
    """All [M, 1, L] on the device of the inputs; what is NaN or infinite is meant to be."""

    expected: torch.Tensor  # float16: the exact sum, rounded once, to nearest even
    terms: torch.Tensor  # float64: sum |a b sfa sfb|, the scale of honest rounding errors
    exact: torch.Tensor  # float64: the sum itself


def exact(data: tuple[torch.Tensor, ...]) -> Truth:
    """Truth of an `input_t`, from a, b, sfa, sfb alone.

    A block's dot product is a multiple of 1/4 up to 576, its product with two scales has at most
    20 significant bits: float32 holds both exactly, the sum over blocks is float64.  That sum is
    exact too unless the largest and the smallest scales meet over a very long K (57 bits).
    """
    a, b, sfa, sfb = (tensor.view(torch.uint8).permute(2, 0, 1) for tensor in data[:4])
    both = _batches(a, b[:, 0], sfa, sfb[:, 0])[:, :, None, :].permute(1, 2, 0, 3)  # [M, 1, L, 2]
    return Truth(expected=to_half(both[..., 0]), terms=both[..., 1], exact=both[..., 0])


def to_half(values: torch.Tensor) -> torch.Tensor:
    """float64 to float16 in one rounding; torch's own cast rounds to float32 on the way.

    Rounding to float32 towards zero with a sticky last bit keeps all that the second rounding
    needs to know, so that only the second one rounds.
    """
    single = values.to(torch.float32)
    bits = single.view(torch.int32)
    bits = torch.where(single.to(torch.float64).abs() > values.abs(), bits - 1, bits)
    inexact = single.to(torch.float64) != values
    return (bits | inexact.to(torch.int32)).view(torch.float32).to(torch.float16)


def decode(codes: torch.Tensor) -> torch.Tensor:
    """e2m1 codes (a uint8 nibble each) as float32."""
    table = _values(codes.device)
    return table.index_select(0, codes.reshape(-1).to(torch.int32)).view(codes.shape)


def _batches(
    a: torch.Tensor, b: torch.Tensor, sfa: torch.Tensor, sfb: torch.Tensor
) -> torch.Tensor:
    """float64 [L, M, 2], the sum and the sum of absolute terms, of uint8 a [L, M, K/2], b [L, K/2],
    sfa [L, M, K/16], sfb [L, K/16].
    """
    batches, rows, width = a.shape
    sums = torch.empty(batches, rows, 2, dtype=torch.float64, device=a.device)
    chunk = max(1, (CHUNK_CPU if a.device.type == "cpu" else CHUNK_GPU) // width)  # rows
    wide = min(batches, chunk)
    tall = max(1, chunk // wide)
    for first in range(0, batches, wide):
        some = slice(first, first + wide)
        vector = b[some].to(torch.int32).mul_(256)[:, None, :]
        scale_b = sfb[some].view(torch.float8_e4m3fn).to(torch.float32)[:, None, :]
        for start in range(0, rows, tall):
            part = slice(start, start + tall)
            dots = _block_dots(a[some, part], vector)
            scale_a = sfa[some, part].view(torch.float8_e4m3fn).to(torch.float32)
            scale = scale_a.mul_(scale_b)
            dots.mul_(torch.stack([scale, scale.abs()], dim=-1))
            sums[some, part] = dots.sum(dim=2, dtype=torch.float64)
    return sums


def _block_dots(a: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """float32 [L, rows, bytes/8, 2]: signed and absolute dot products of 16 elements each."""
    index = a.to(torch.int32).add_(vector)
    products = _products(a.device).index_select(0, index.reshape(-1))
    return torch.view_as_real(products.view(*a.shape[:2], -1, 8).sum(dim=3))


@cache
def _values(device: torch.device) -> torch.Tensor:
    """float32 [16]: the value of each e2m1 code."""
    return torch.tensor([*E2M1, *(-x for x in E2M1)], device=device)


@cache
def _products(device: torch.device) -> torch.Tensor:
    """complex64 [256 * 256]: for each byte of b, what each byte of a gives against it.

    The real part is the sum of the two products, the imaginary part that of their absolutes: one
    lookup yields both, and torch adds both at once.
    """
    every = torch.arange(256, dtype=torch.uint8, device=device)
    low, high = decode(every & 15), decode(every >> 4)
    low, high = low[:, None] * low, high[:, None] * high
    return torch.complex(low + high, low.abs() + high.abs()).view(-1)
