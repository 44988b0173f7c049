#!HARNESS author kernel-harness
"""The tensor cores' own FP4 product, straight from the permuted scales: no copy, no swizzle kernel.

The matrix unit wants N = 128 columns, of which 127 are padding, so it reads all of b and sfb and
writes 127 columns that nobody wants.  That is little beside A.  What it costs is a launch per
batch, and a second one for column 0.
"""

import torch

from task import input_t, output_t


def blocked(scales):
    """One batch of permuted scales [32, 4, rows/128, 4, K/64] as the bytes that cuBLASLt reads.

    In memory the order already is rows/128, K/64, 32, 4, 4 (the two fours: row block, scale
    column), so this view is contiguous and flattening it copies nothing.
    """
    return scales.permute(2, 4, 0, 1, 3).flatten()


def multiply(a, b, scale_a, scale_b):
    """[M, K/2] times [128, K/2] transposed, float16 [M, 128]."""
    if hasattr(torch, "_scaled_mm"):
        return torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=torch.float16)
    functional = torch.nn.functional
    recipe, swizzle = functional.ScalingType.BlockWise1x16, functional.SwizzleType.SWIZZLE_32_4_4
    return functional.scaled_mm(
        a, b.t(), scale_a, recipe, scale_b, recipe, swizzle, swizzle, output_dtype=torch.float16
    )


def custom_kernel(data: input_t) -> output_t:
    """c, written in place, one product per batch on the current stream."""
    a, b, _, _, sfa, sfb, c = data
    for i in range(a.shape[2]):
        product = multiply(a[:, :, i], b[:, :, i], blocked(sfa[..., i]), blocked(sfb[..., i]))
        c[:, 0, i] = product[:, 0]
    return c
