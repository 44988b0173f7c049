#!HARNESS author your-name
"""A place to start in Triton: one program for a row, right for every shape, far from fast.

harness run submissions/NAME.py --mode test     checks it
harness run submissions/NAME.py                 checks it, times it, ranks it
"""

import torch
import triton
import triton.language as tl

from task import input_t, output_t


@triton.jit
def e2m1(code):
    """The float32 value of a 4-bit code: 0 0.5 1 1.5 2 3 4 6, negative with bit 3."""
    magnitude = code & 7
    twice = tl.where(
        magnitude < 4, magnitude, tl.where(magnitude < 6, 2 * magnitude - 4, 4 * magnitude - 16)
    )
    return tl.where(code & 8 != 0, -twice, twice).to(tl.float32) * 0.5


@triton.jit
def e4m3(code):
    """The float32 value of an 8-bit code: in float16's place it reads 2^8 too small."""
    wide = code.to(tl.int16)
    bits = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)
    value = bits.to(tl.float16, bitcast=True).to(tl.float32) * 256.0
    return tl.where((wide & 0x7F) == 0x7F, float("nan"), value)


@triton.jit
def gemv(a, b, sfa, sfb, c, m, half_k, BYTES: tl.constexpr):
    """c[batch, row]: BYTES bytes (two elements each, 8 bytes to a scale) of the row at a time."""
    row, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    a += (batch * m + row) * half_k
    sfa += (batch * m + row) * (half_k // 8)
    b += batch * 128 * half_k  # b has 128 rows; only the first counts
    sfb += batch * 128 * (half_k // 8)
    total = tl.zeros((BYTES,), tl.float32)
    for start in range(0, half_k, BYTES):
        byte = start + tl.arange(0, BYTES)
        inside = byte < half_k
        x = tl.load(a + byte, inside, 0).to(tl.int32)
        y = tl.load(b + byte, inside, 0).to(tl.int32)
        sx = tl.load(sfa + byte // 8, inside, 0)
        sy = tl.load(sfb + byte // 8, inside, 0)
        # The low nibble is the even element.
        dot = e2m1(x & 15) * e2m1(y & 15) + e2m1(x >> 4) * e2m1(y >> 4)
        # In float32: the product of two scales can be larger than float16 holds.
        total += dot * (e4m3(sx) * e4m3(sy))
    tl.store(c + batch * m + row, tl.sum(total, axis=0).to(tl.float16))


def custom_kernel(data: input_t) -> output_t:
    # Shapes, dtypes and strides are described in task/types.py.
    a, b, sfa, sfb, _, _, c = data
    m, half_k, batches = a.shape
    codes = [tensor.view(torch.uint8) for tensor in (a, b, sfa, sfb)]
    gemv[(m, batches)](*codes, c, m, half_k, BYTES=1024)
    return c
