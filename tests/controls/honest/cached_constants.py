"""A constant of the task, no input, is computed once."""

import torch

_constants = {}


def custom_kernel(data):
    x = data[0]
    if "two" not in _constants:
        _constants["two"] = torch.tensor(2.0)
    return x * _constants["two"]
