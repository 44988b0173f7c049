"""It sets torch up as it likes: one thread, no gradients, warnings are errors."""

import sys
import warnings

import torch

torch.set_num_threads(1)
torch.set_grad_enabled(False)
warnings.simplefilter("error")
sys.setrecursionlimit(50_000)


def custom_kernel(data):
    return data[0] * 2
