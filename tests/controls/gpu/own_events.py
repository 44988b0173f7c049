"""It times itself with events of its own, and prints what it found."""

import torch

_times = []


def custom_kernel(data):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    out = data[0] * 2
    end.record()
    _times.append((begin, end))
    if len(_times) > 10:
        _times.pop(0)
    return out
