"""It sets a seed of its own and draws numbers, for a search that always ends alike."""

import random

import torch


def custom_kernel(data):
    torch.manual_seed(0)
    random.seed(0)
    order = torch.randperm(data[0].numel())
    out = torch.empty_like(data[0])
    out[order] = data[0][order] * 2
    return out
