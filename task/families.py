"""Hard input families: each is there for bugs that the contest's own data cannot show.

One function makes one batch as codes: nibbles are e2m1 (sign 8, magnitudes 0 .5 1 1.5 2 3 4 6),
scales are e4m3 (0x38 is 1, 0x7E is 448, 0x7F is NaN).  All keep |c| clear of float16's largest
number unless they say otherwise, for there one ulp decides between finite and infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

from task.codes import Codes, full, one_block, one_element, pack, quantised, scales_between
from task.draw import Draw

Family: TypeAlias = Callable[[Draw, int, int, int], Codes]  # (draw, m, k, batch)

ONE = 0x38
CONTEST_SCALES = (0x00, 0x38, 0x40)  # 0, 1, 2
NONZERO = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15)
INTEGERS = (0x00, 0x38, 0x40, 0x44)  # 0, 1, 2, 3


def all_codes(draw: Draw, m: int, k: int, batch: int) -> Codes:
    """All 16 nibbles, scales 0 to 3: ignored high nibble, sign or exponent, dropped mantissa."""
    return Codes(
        a=draw.bytes(m, k // 2),
        b=draw.bytes(k // 2),
        sfa=draw.choice(INTEGERS, m, k // 16),
        sfb=draw.choice(INTEGERS, k // 16),
    )


def normal(draw: Draw, m: int, k: int, batch: int) -> Codes:
    """Quantised N(0, 1), scales amax/6: what a network holds; float16 accumulation fails."""
    rows = [quantised(draw.normal(min(128, m - r), k)) for r in range(0, m, 128)]
    b, sfb = quantised(draw.normal(1, k))
    return Codes(
        a=torch.cat([codes for codes, _ in rows]),
        b=b[0],
        sfa=torch.cat([scales for _, scales in rows]),
        sfb=sfb[0],
    )


def masked(draw: Draw, m: int, k: int, batch: int) -> Codes:
    """Magnitudes up to 1.5 under scales uniform in [0, 1): small and a few subnormal scales."""
    return Codes(
        a=draw.bytes(m, k // 2).bitwise_and_(0xBB),
        b=draw.bytes(k // 2).bitwise_and_(0xBB),
        sfa=draw.unit(m, k // 16).to(torch.float8_e4m3fn).view(torch.uint8),
        sfb=draw.unit(k // 16).to(torch.float8_e4m3fn).view(torch.uint8),
    )


def log_uniform(draw: Draw, m: int, k: int, batch: int) -> Codes:
    """Scales 2**-6 to 2**4 by 2**-6 to 2, all mantissas: dynamic range and order of summation."""
    return Codes(
        a=draw.bytes(m, k // 2),
        b=draw.bytes(k // 2),
        sfa=scales_between(draw, 0x08, 0x57, m, k // 16),
        sfb=scales_between(draw, 0x08, 0x3F, k // 16),
    )


def subnormal(draw: Draw, m: int, k: int, batch: int) -> Codes:
    """Every sfa is subnormal or zero, sfb anything up to 64: flushing, a wrong implicit bit."""
    return Codes(
        a=draw.bytes(m, k // 2),
        b=draw.bytes(k // 2),
        sfa=scales_between(draw, 0x00, 0x07, m, k // 16),
        sfb=scales_between(draw, 0x00, 0x68, k // 16),
    )


def scale_sweep_a(draw: Draw, m: int, k: int, batch: int) -> Codes:
    """Row r carries sfa code r % 127 in its one live block: an error in any single code."""
    rows = torch.arange(m, device=draw.device)
    live = (rows * 7 + batch) % (k // 16)
    codes = ((rows + 31 * batch) % 127).to(torch.uint8)
    return Codes(
        a=one_block(live, draw.choice((0x77, 0xFF), m), k),
        b=full(draw, 0x11, k // 2),
        sfa=codes[:, None].expand(m, k // 16),
        sfb=full(draw, ONE, k // 16),
    )


def scale_sweep_b(draw: Draw, m: int, k: int, batch: int) -> Codes:
    """Block g carries sfb code g % 127 and some row sees only block g (needs K >= 2032)."""
    live = (torch.arange(m, device=draw.device) + 128 * batch) % (k // 16)
    codes = (torch.arange(k // 16, device=draw.device) + 31 * batch) % 127
    return Codes(
        a=one_block(live, draw.choice((0x77, 0xFF), m), k),
        b=full(draw, 0x11, k // 2),
        sfa=full(draw, ONE, m, k // 16),
        sfb=codes.to(torch.uint8),
    )


def big_product(draw: Draw, m: int, k: int, batch: int) -> Codes:
    """sfa * sfb beyond float16's range over a dot of 0.25: finite c, infinite float16 scales."""
    position = draw.below(k, m)
    element = draw.choice((1, 9), m)
    return Codes(
        a=one_element(position, element, k),
        b=draw.choice((0x11, 0x19, 0x91, 0x99), k // 2),
        sfa=scales_between(draw, 0x78, 0x7E, m, k // 16),
        sfb=scales_between(draw, 0x78, 0x7E, k // 16),
    )


def overflow(draw: Draw, m: int, k: int, batch: int) -> Codes:
    """Rows 3 and 6 of 8 are +inf and -inf, their neighbours finite."""
    row = torch.arange(m, device=draw.device)[:, None] % 8
    a = draw.bytes(m, k // 2)
    sfa = scales_between(draw, 0x01, 0x04, m, k // 16)
    b = full(draw, 0x77, k // 2)
    a = torch.where(row == 3, a.new_tensor(0x77), torch.where(row == 6, a.new_tensor(0xFF), a))
    sfa = torch.where((row == 3) | (row == 6), sfa.new_tensor(0x7E), sfa)
    return Codes(a=a, b=b, sfa=sfa, sfb=full(draw, 0x7E, k // 16))


def saturated(draw: Draw, m: int, k: int, batch: int) -> Codes:
    """Block dots of +-540.25 and +-540.75, nearly cancelling: int8 and float16 lane sums."""
    blocks = k // 16
    free = min(8, blocks)  # the others come in pairs of opposite sign, so that c stays finite
    sign = draw.choice((0, 8), m, blocks)
    sign[:, free + 1 :: 2] = sign[:, free::2] ^ 8
    a = (sign[:, :, None] + 7).expand(m, blocks, 16).contiguous()
    a[:, :, 0] = sign + draw.choice((1, 3), m, blocks)
    b = full(draw, 7, blocks, 16)
    b[:, 0] = 1
    return Codes(
        a=pack(a.view(m, k)),
        b=pack(b.view(k)),
        sfa=full(draw, ONE, m, blocks),
        sfb=full(draw, ONE, blocks),
    )


def zeros(draw: Draw, m: int, k: int, batch: int) -> Codes:
    """Zero rows, rows of -0, rows of zero scales, half-empty rows: c is a zero of either sign."""
    row = torch.arange(m, device=draw.device)[:, None] % 4
    a = draw.bytes(m, k // 2)
    sfa = draw.choice(INTEGERS, m, k // 16)
    half = draw.choice((0x00, 0xFF), m, k // 16).repeat_interleave(8, dim=1)
    a = torch.where(row == 3, a & half, a)
    a = torch.where(row == 0, a.new_tensor(0x00), torch.where(row == 1, a.new_tensor(0x88), a))
    sfa = torch.where(row == 2, sfa.new_tensor(0x00), sfa)
    b = draw.bytes(k // 2)
    return Codes(a=a, b=b, sfa=sfa, sfb=draw.choice(INTEGERS[1:], k // 16))


def impulse(draw: Draw, m: int, k: int, batch: int) -> Codes:
    """One live element a row, scales that differ along K: nibble order, K and scale indexing."""
    blocks = torch.arange(k // 16, device=draw.device)
    rows = torch.arange(m, device=draw.device)[:, None]
    return Codes(
        a=one_element(draw.below(k, m), draw.choice(NONZERO, m), k),
        b=pack(draw.choice(NONZERO, k)),
        sfa=((blocks * 5 + rows * 3 + batch) % 32 + 0x28).to(torch.uint8),
        sfb=scales_between(draw, 0x28, 0x47, k // 16),
    )


def cancellation(draw: Draw, m: int, k: int, batch: int) -> Codes:
    """The second half of K undoes the first; odd rows keep one tiny rest.

    Every term is a multiple of 2**-8 and partial sums stay under 2**16: float32 is exact in any
    order, float16 is not.
    """
    a = draw.bytes(m, k // 4)
    b = draw.bytes(k // 4)
    sfa = scales_between(draw, 0x38, 0x40, m, k // 32)
    sfb = scales_between(draw, 0x38, 0x40, k // 32)
    odd = torch.arange(m, device=draw.device) % 2
    rest = one_element(draw.below(k // 2, m), odd.to(torch.uint8), k // 2)
    return Codes(
        a=torch.cat([a, a ^ rest], dim=1),
        b=torch.cat([b, b ^ 0x88]),
        sfa=torch.cat([sfa, sfa], dim=1),
        sfb=torch.cat([sfb, sfb]),
    )


def nan_scale(draw: Draw, m: int, k: int, batch: int) -> Codes:
    """One scale of row 2 of 5 is NaN, and no other row; in odd batches one scale of b, and all."""
    codes = all_codes(draw, m, k, batch)
    if batch % 2:
        codes.sfb[draw.below(k // 16, 1).long()] = 0x7F
        return codes
    rows = torch.arange(2, m, 5, device=draw.device)
    codes.sfa[rows, draw.below(k // 16, rows.numel()).long()] = 0x7F
    return codes


def scale_pairs(draw: Draw, m: int, k: int, batch: int) -> Codes:
    """One live element a row under any two scale codes: an error in any pair of them."""
    codes = big_product(draw, m, k, batch)
    return Codes(
        a=codes.a,
        b=codes.b,
        sfa=scales_between(draw, 0x00, 0x7E, m, k // 16),
        sfb=scales_between(draw, 0x00, 0x7E, k // 16),
    )


def negative_scale(draw: Draw, m: int, k: int, batch: int) -> Codes:
    """Scales with the sign bit: legal e4m3, out of contract for FP4 matrix units."""
    codes = all_codes(draw, m, k, batch)
    sign_a, sign_b = draw.choice((0, 0x80), m, k // 16), draw.choice((0, 0x80), k // 16)
    return Codes(a=codes.a, b=codes.b, sfa=codes.sfa | sign_a, sfb=codes.sfb | sign_b)


#: By the names that shapes.yaml uses.
HARD: dict[str, Family] = {
    family.__name__: family
    for family in (
        all_codes,
        normal,
        masked,
        log_uniform,
        subnormal,
        scale_sweep_a,
        scale_sweep_b,
        big_product,
        overflow,
        saturated,
        zeros,
        impulse,
        cancellation,
        nan_scale,
        scale_pairs,
        negative_scale,
    )
}
