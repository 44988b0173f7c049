"""It tries two ways on the first input of each size and keeps the faster one."""

import time

import torch

_WAYS = [lambda x: x * 2, lambda x: torch.add(x, x)]
_best = {}


def _tuned(x):
    times = []
    for way in _WAYS:
        begin = time.perf_counter()
        for _ in range(5):
            way(x)
        times.append(time.perf_counter() - begin)
    return _WAYS[times.index(min(times))]


def custom_kernel(data):
    x = data[0]
    if x.numel() not in _best:
        _best[x.numel()] = _tuned(x)
    return _best[x.numel()](x)
