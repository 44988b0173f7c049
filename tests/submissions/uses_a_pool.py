"""Right: a pool of processes that import this file by its path; its locks lie in /dev/shm."""

from __future__ import annotations

import multiprocessing


def custom_kernel(data):
    return data[0] * 2.0


def square(x):
    return x * x


if multiprocessing.current_process().name == "MainProcess":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(square, [1, 2, 3]) == [1, 4, 9]
