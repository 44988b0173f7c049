"""A result in the middle of a larger buffer."""

import torch


def custom_kernel(data):
    x = data[0]
    buffer = torch.zeros(x.numel() + 200)
    out = buffer[100 : 100 + x.numel()]
    torch.mul(x, 2, out=out)
    return out
