"""Right: what works in a file must work here: its source, dataclasses."""

from __future__ import annotations

import inspect
from dataclasses import dataclass


@dataclass
class Factor:
    value: float


def custom_kernel(data):
    return data[0] * Factor(2.0).value


assert "Factor(2.0)" in inspect.getsource(custom_kernel)
assert __name__ == "submission" and __file__.endswith(".py")
