"""It needs much memory for a moment: half a gigabyte of scratch space."""

import torch


def custom_kernel(data):
    scratch = torch.ones(1 << 27)
    return data[0] * (scratch[0] + scratch[-1])
