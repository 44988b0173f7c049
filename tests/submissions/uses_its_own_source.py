"""Right: what works in a file must work here: source, dataclasses, child processes."""

from __future__ import annotations

import inspect
import multiprocessing
from dataclasses import dataclass


@dataclass
class Factor:
    value: float


def custom_kernel(data):
    return data[0] * Factor(2.0).value


assert "Factor(2.0)" in inspect.getsource(custom_kernel)
assert __name__ == "submission" and __file__.endswith(".py")


def square(x):
    return x * x


if multiprocessing.current_process().name == "MainProcess":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(square, [1, 2, 3]) == [1, 4, 9]
