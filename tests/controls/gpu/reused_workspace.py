"""One output tensor a size, filled anew in each call."""

import torch

_workspace = {}


def custom_kernel(data):
    x = data[0]
    if x.numel() not in _workspace:
        _workspace[x.numel()] = torch.empty_like(x)
    return torch.mul(x, 2, out=_workspace[x.numel()])
