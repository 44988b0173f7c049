"""Slow: right after 20 ms, in a process whose clocks say otherwise."""

import time

import torch

sleep = time.sleep
event = getattr(torch.cuda, "Ev" + "ent")
setattr(event, "elapsed" + "_time", lambda self, other: 1e-6)
for name in ("perf_counter", "monotonic", "time"):
    setattr(time, name, lambda: 0.0)
    setattr(time, name + "_ns", lambda: 0)


def custom_kernel(data):
    sleep(0.02)
    return data[0] * 2
