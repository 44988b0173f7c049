#!HARNESS author your-name
"""A place to start: slow, small and right.  Replace the body, keep the name and what it returns.

harness run submissions/NAME.py --mode test     checks it
harness run submissions/NAME.py                 checks it, times it, ranks it
"""

import torch

from task import input_t, output_t

# e2m1: the low nibble of a byte is the even element; bit 3 is the sign.
VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def custom_kernel(data: input_t) -> output_t:
    # Shapes, dtypes and strides are described in task/types.py.
    a, b, sfa, sfb, sfa_permuted, sfb_permuted, c = data

    for i in range(a.shape[2]):  # one batch after the other
        matrix = dequantise(a[:, :, i], sfa[:, :, i])  # [M, K]
        vector = dequantise(b[:1, :, i], sfb[:1, :, i])  # only row 0 of b counts
        c[:, 0, i] = (matrix @ vector[0]).to(torch.float16)

    # Writing c and returning it saves an allocation; a fresh tensor is just as good.  Work on
    # another stream must be ordered after the current one, and joined before returning.
    return c


def dequantise(packed, scales):
    """float32 [rows, K] of packed e2m1 [rows, K/2] and one e4m3 scale for 16 elements."""
    codes = packed.view(torch.uint8)
    nibbles = torch.stack([codes & 15, codes >> 4], dim=2).view(codes.shape[0], -1)
    values = VALUES.to(codes.device)[nibbles.int()]
    return values * scales.to(torch.float32).repeat_interleave(16, dim=1)
