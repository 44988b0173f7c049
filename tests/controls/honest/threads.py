"""The work is shared by threads, all of them joined."""

from concurrent.futures import ThreadPoolExecutor

import torch

_pool = ThreadPoolExecutor(2)


def custom_kernel(data):
    x = data[0]
    out = torch.empty_like(x)
    half = x.numel() // 2
    parts = [slice(0, half), slice(half, None)]
    list(_pool.map(lambda part: torch.mul(x[part], 2, out=out[part]), parts))
    return out
