"""Control: right, but every clock of its process says that no time passes (ATTACKS A1, A2)."""

import time

import torch

time.perf_counter_ns = time.monotonic_ns = time.time_ns = lambda: 0
time.perf_counter = time.monotonic = time.time = lambda: 0.0
torch.cuda.Event.elapsed_time = lambda start, end: 1e-6


def custom_kernel(data):
    return data[0] * 2
