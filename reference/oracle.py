"""The exact answer from the uint8 codes: no FP4 hardware, any device, one rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

#: e2m1 magnitudes by code; bit 3 is the sign.
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)

#: Bytes of a per chunk.  CPU: measured best of 2**17 to 2**22 on two cores, the temporaries (12
#: bytes each) still fit a cache, and torch meets its threads less often, which is what costs on a
#: busy machine.  GPU: few launches, about 0.4 GB of temporaries.
CHUNK_CPU = 1 << 20
CHUNK_GPU = 1 << 24


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
    a, b, sfa, sfb = (tensor.view(torch.uint8) for tensor in data[:4])
    sums = [_batch(a[:, :, i], b[0, :, i], sfa[:, :, i], sfb[0, :, i]) for i in range(a.shape[2])]
    both = torch.stack(sums)[:, :, None, :].permute(1, 2, 0, 3)  # [M, 1, L, 2]
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
    table = torch.tensor([*E2M1, *(-x for x in E2M1)], device=codes.device)
    return table.index_select(0, codes.reshape(-1).to(torch.int32)).view(codes.shape)


def _batch(a: torch.Tensor, b: torch.Tensor, sfa: torch.Tensor, sfb: torch.Tensor) -> torch.Tensor:
    """float64 [M, 2]: the sum and the sum of absolute terms; codes a [M, K/2], b [K/2]."""
    sums = torch.zeros(a.shape[0], 2, dtype=torch.float64, device=a.device)
    scale_b = sfb.view(torch.float8_e4m3fn).to(torch.float32)
    for columns, rows in _chunks(a):
        table = _products(b[columns])
        blocks = slice(columns.start // 8, columns.stop // 8)
        for part in rows:
            dots = _block_dots(a[part, columns], table)  # [rows, blocks, 2]
            scale_a = sfa[part, blocks].view(torch.float8_e4m3fn).to(torch.float32)
            scale = scale_a.mul_(scale_b[blocks])
            dots.mul_(torch.stack([scale, scale.abs()], dim=-1))
            sums[part] += dots.sum(dim=1, dtype=torch.float64)
    return sums


def _chunks(a: torch.Tensor) -> Iterator[tuple[slice, list[slice]]]:
    """Byte columns whose table fits a cache, each with the row ranges to go through."""
    rows, width = a.shape
    step = 512 if a.device.type == "cpu" else width
    tall = max(1, (CHUNK_CPU if a.device.type == "cpu" else CHUNK_GPU) // min(step, width))
    parts = [slice(r, min(r + tall, rows)) for r in range(0, rows, tall)]
    for start in range(0, width, step):
        yield slice(start, min(start + step, width)), parts


def _products(b: torch.Tensor) -> torch.Tensor:
    """complex64 [bytes * 256]: for each byte of b, what each byte of a gives against it.

    The real part is the sum of the two products, the imaginary part that of their absolutes: one
    lookup yields both, and torch adds both at once.
    """
    every = torch.arange(256, dtype=torch.uint8, device=b.device)
    low = decode(every & 15) * decode(b & 15)[:, None]
    high = decode(every >> 4) * decode(b >> 4)[:, None]
    return torch.complex(low + high, low.abs() + high.abs()).view(-1)


def _block_dots(a: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """float32 [rows, bytes/8, 2]: signed and absolute dot products of 16 elements each."""
    rows, width = a.shape
    offsets = torch.arange(0, 256 * width, 256, dtype=torch.int32, device=a.device)
    index = a.to(torch.int32).add_(offsets)
    products = table.index_select(0, index.view(-1)).view(rows, width // 8, 8)
    return torch.view_as_real(products.sum(dim=2))
