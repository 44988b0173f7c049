"""A result that is not contiguous: every second element of a larger one."""

import torch


def custom_kernel(data):
    x = data[0]
    return torch.stack([x, x * 2], dim=1)[:, 1]
