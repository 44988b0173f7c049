"""`generate_input`: codes of one family laid out as the contest's seven tensors."""

from __future__ import annotations

import torch

from task import families
from task.codes import Codes, scales_between
from task.draw import Draw
from task.types import input_t

#: Rows of b and sfb; the kernels that the contest came from want N padded to one 128-row tile.
ROWS_B = 128

#: Input families, the contest's own and what is timed first; families.py has the others.
FAMILIES = ("competition", "needles", *families.HARD)


def generate_input(
    m: int,
    k: int,
    l: int,  # noqa: E741  the contest's name for the number of batches
    seed: int,
    *,
    inputs: str = "competition",
    device: str = "cpu",
) -> input_t:
    """Fresh inputs, the same for the same arguments; CPU and CUDA draw different ones.

    m is a multiple of 128, k of 64, seed any integer of 64 bits, inputs one of FAMILIES.  Shapes,
    dtypes and strides are those of `input_t`; c is NaN throughout, so that what was not written
    shows.  Raises ValueError for other arguments.
    """
    if m < 128 or m % 128 or k < 64 or k % 64 or l < 1:
        raise ValueError(f"m={m}, k={k}, l={l}: m must be a multiple of 128, k of 64, l at least 1")
    if inputs not in FAMILIES:
        raise ValueError(f"no input family {inputs!r}; there are {', '.join(FAMILIES)}")
    where = torch.device(device)
    draw = Draw(seed, where)
    if inputs in families.HARD:
        codes = _hard(draw, m, k, l, make=families.HARD[inputs])
    else:
        codes = {"competition": _competition, "needles": _needles}[inputs](draw, m, k, l)
    c = torch.full((l, m, 1), torch.nan, dtype=torch.float16, device=where).permute(1, 2, 0)
    return (
        codes.a.permute(1, 2, 0).view(torch.float4_e2m1fn_x2),
        codes.b.permute(1, 2, 0).view(torch.float4_e2m1fn_x2),
        codes.sfa.permute(1, 2, 0).view(torch.float8_e4m3fn),
        codes.sfb.permute(1, 2, 0).view(torch.float8_e4m3fn),
        permuted(codes.sfa).view(torch.float8_e4m3fn),
        permuted(codes.sfb).view(torch.float8_e4m3fn),
        c,
    )


def permuted(scales: torch.Tensor) -> torch.Tensor:
    """uint8 [L, rows, K/16] in the hardware's order, as a view [32, 4, rows/128, 4, K/64, L].

    A tile of 128 rows and 4 scale columns is 512 consecutive bytes; row i, column j lies at
    (i % 32) * 16 + (i % 128 // 32) * 4 + j % 4 in it, tiles go along K first.
    """
    batches, rows, columns = scales.shape
    tiles = scales.view(batches, rows // 128, 4, 32, columns // 4, 4)
    storage = tiles.permute(0, 1, 4, 3, 2, 5).contiguous()
    return storage.permute(3, 4, 1, 5, 2, 0)


def _competition(draw: Draw, m: int, k: int, batches: int) -> Codes:
    """The contest's data: bytes 0 to 3 (so every high nibble is zero) and scales 0, 1, 2."""
    scales = families.CONTEST_SCALES
    return Codes(
        a=draw.bytes(batches, m, k // 2).bitwise_and_(3),
        b=draw.bytes(batches, ROWS_B, k // 2).bitwise_and_(3),
        sfa=draw.choice(scales, batches, m, k // 16),
        sfb=draw.choice(scales, batches, ROWS_B, k // 16),
    )


def _needles(draw: Draw, m: int, k: int, batches: int) -> Codes:
    """The contest's data with other codes here and there.

    What is timed.  The contest's own data knows 4 of 256 bytes and 3 scales: a kernel that can do
    no more is right on it, and would tell timed calls from tests by counting.  In half of the rows
    one block has any codes and one any scale, at times the same; every sixteenth row has any codes
    throughout, every 64th a NaN.  In half of the batches b has some such blocks.
    """
    blocks, scales = k // 16, families.CONTEST_SCALES
    kind = draw.below(64, batches, m, 1)
    a = draw.bytes(batches, m, k // 2)
    a.bitwise_and_(torch.where(kind % 16 == 1, 0xFF, 0x03).to(torch.uint8))
    sfa = draw.choice(scales, batches, m, blocks)
    at, odd = draw.below(blocks, batches, m, 1).long(), kind % 2 == 0
    _put(a.view(torch.int64), at, odd, draw.bytes(batches, m, 8).view(torch.int64))  # a block
    elsewhere = torch.where(kind % 4 == 0, at, draw.below(blocks, batches, m, 1).long())
    any_scale = scales_between(draw, 0x00, 0x57, batches, m, 1)
    _put(sfa, elsewhere, odd, any_scale.masked_fill_(kind == 2, 0x7F))
    b, sfb = _poisoned(draw, k, batches)
    # Not in all: whoever looks at b first learns nothing of a.
    other = (draw.below(4, batches, blocks) == 0) & draw.below(2, batches, 1).bool()
    b[:, 0].bitwise_and_(torch.where(other.repeat_interleave(8, dim=1), 0xFF, 0x03).to(torch.uint8))
    any_scales = scales_between(draw, 0x00, 0x3F, batches, blocks)
    sfb[:, 0] = torch.where(other, any_scales, draw.choice(scales, batches, blocks))
    return Codes(a=a, b=b, sfa=sfa, sfb=sfb)


def _poisoned(draw: Draw, k: int, batches: int) -> tuple[torch.Tensor, torch.Tensor]:
    """b and sfb of any bytes and NaN scales, whose row 0 is still to be written."""
    b = draw.bytes(batches, ROWS_B, k // 2)
    return b, draw.bytes(batches, ROWS_B, k // 16).bitwise_or_(0x7F)


def _put(target: torch.Tensor, at: torch.Tensor, where: torch.Tensor, new: torch.Tensor) -> None:
    """target[l, i, at] = new in the rows [l, i, 1] where it says so; nothing waits for a GPU."""
    target.scatter_(2, at, torch.where(where, new, target.gather(2, at)))


def _hard(draw: Draw, m: int, k: int, batches: int, *, make: families.Family) -> Codes:
    """One family, batch by batch, with rows 1 to 127 of b and sfb poisoned."""
    b, sfb = _poisoned(draw, k, batches)
    a = b.new_empty(batches, m, k // 2)
    sfa = b.new_empty(batches, m, k // 16)
    for batch in range(batches):
        codes = make(draw, m, k, batch)
        a[batch], b[batch, 0], sfa[batch], sfb[batch, 0] = codes.a, codes.b, codes.sfa, codes.sfb
    return Codes(a=a, b=b, sfa=sfa, sfb=sfb)
