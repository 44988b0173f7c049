"""It synchronises inside the call, which is slow and allowed."""

import torch


def custom_kernel(data):
    out = data[0] * 2
    torch.cuda.synchronize()
    return out
