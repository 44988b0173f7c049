"""It reads its own source, has a dataclass and late annotations, as kernel languages do."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from task import input_t, output_t


@dataclass
class Config:
    factor: int = 2


def custom_kernel(data: input_t) -> output_t:
    return data[0] * Config().factor


assert "Config().factor" in inspect.getsource(custom_kernel)
assert inspect.getmodule(Config).__name__ == Config.__module__
