"""e2m1 and e4m3 codes as uint8, and the pieces that the input families are made of."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from task.draw import Draw

#: Halfway points between the magnitudes 0 .5 1 1.5 2 3 4 6.
MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)


@dataclass(frozen=True, slots=True)
class Codes:
    """uint8 codes: a [.., M, K/2], b [.., K/2], sfa [.., M, K/16], sfb [.., K/16].

    A family makes one batch and row 0 of b; in the generator all have a leading L, and b 128 rows.
    """

    a: torch.Tensor
    b: torch.Tensor
    sfa: torch.Tensor
    sfb: torch.Tensor


def pack(nibbles: torch.Tensor) -> torch.Tensor:
    """Two neighbours along the last axis to a byte, the even one in the low half."""
    return nibbles[..., 0::2] | (nibbles[..., 1::2] << 4)


def quantised(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 [rows, K] as nibbles [rows, K/2] and scales [rows, K/16] of amax/6."""
    blocks = values.view(values.shape[0], -1, 16)
    scales = (blocks.abs().amax(dim=2) / 6).to(torch.float8_e4m3fn)
    units = blocks / scales.to(torch.float32)[:, :, None]
    magnitude = torch.bucketize(units.abs(), units.new_tensor(MIDPOINTS), out_int32=True)
    nibbles = magnitude.to(torch.uint8) | (units.signbit().to(torch.uint8) << 3)
    return pack(nibbles.view(values.shape)), scales.view(torch.uint8)


def scales_between(draw: Draw, low: int, high: int, *shape: int) -> torch.Tensor:
    """Uniform e4m3 codes low to high: log-uniform values with every mantissa."""
    return draw.below(high - low + 1, *shape).add_(low).to(torch.uint8)


def full(draw: Draw, code: int, *shape: int) -> torch.Tensor:
    """The same byte everywhere, on the device of the draw."""
    return torch.full(shape, code, dtype=torch.uint8, device=draw.device)


def one_block(block: torch.Tensor, byte: torch.Tensor, k: int) -> torch.Tensor:
    """[M, K/2] of zeros, but for the 8 bytes of block[m] in row m."""
    live = torch.arange(k // 16, device=block.device) == block[:, None]
    return torch.where(live, byte[:, None], byte.new_tensor(0)).repeat_interleave(8, dim=1)


def one_element(position: torch.Tensor, nibble: torch.Tensor, k: int) -> torch.Tensor:
    """[M, K/2] of zeros, but for the element position[m] of row m."""
    packed = nibble.new_zeros(nibble.shape[0], k // 2)
    byte = nibble << ((position % 2) * 4).to(torch.uint8)
    return packed.scatter_(1, (position.long() // 2)[:, None], byte[:, None])
