"""The contest's input and output types."""

from typing import TypeAlias

import torch

#: (a, b, sfa, sfb, sfa_permuted, sfb_permuted, c); R = 128, the padded rows of b
#:   a             float4_e2m1fn_x2  [M, K/2, L]                strides (K/2, 1, M*K/2)
#:   b             float4_e2m1fn_x2  [R, K/2, L]                only row 0 matters
#:   sfa           float8_e4m3fn     [M, K/16, L]               strides (K/16, 1, M*K/16)
#:   sfb           float8_e4m3fn     [R, K/16, L]               only row 0 matters
#:   sfa_permuted  float8_e4m3fn     [32, 4, M/128, 4, K/64, L] the bytes of sfa in hardware tiles
#:   sfb_permuted  float8_e4m3fn     [32, 4, 1, 4, K/64, L]     the bytes of sfb in hardware tiles
#:   c             float16           [M, 1, L]                  strides (1, 1, M); write it or not
#: Of the two e2m1 codes in a byte of a or b, the low four bits are the element of even k.  A code's
#: low three bits stand for 0, 0.5, 1, 1.5, 2, 3, 4, 6; its top bit is the sign.
input_t: TypeAlias = tuple[
    torch.Tensor,
    torch.Tensor,
    torch.Tensor,
    torch.Tensor,
    torch.Tensor,
    torch.Tensor,
    torch.Tensor,
]

#: c[m, 0, l] = sum over k of a[m, k, l] * sfa[m, k // 16, l] * b[0, k, l] * sfb[0, k // 16, l]
output_t: TypeAlias = torch.Tensor
