"""NVFP4 block-scaled batched GEMV: what a submission is given and what it returns.

A submission writes `from task import input_t, output_t`; the judge calls `generate_input`.
Only torch, the standard library and this folder are imported, because the worker sees nothing else.
"""

from task.generator import FAMILIES, generate_input
from task.types import input_t, output_t

__all__ = ["FAMILIES", "generate_input", "input_t", "output_t"]
