"""Worker's side: find a submission's result and bring it to where the judge will look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from harness.exchange import TensorSpec
from harness.faults import Refused

# Unbound, and bound to these names before the submission is imported: a result whose own attribute
# `.copy_` or `.size` was replaced is judged on its storage (tests/exploits/zoo/i5_lazy_output.py).
_copy = torch.Tensor.copy_
_detach = torch.Tensor.detach
_pointer = torch.Tensor.data_ptr
_size = torch.Tensor.size
_stride = torch.Tensor.stride
_is_tensor = torch.Tensor


def leaves(result: Any, tree: Any, path: str = "the result") -> list[Any]:
    """The tensors of `result`, which must have the structure of `tree`.  Raises Refused."""
    ((kind, expected),) = tree.items()
    if kind == "tensor":
        if type(result) is not _is_tensor:
            raise Refused("wrong_type", f"{path} is a {_name(result)}, expected a torch.Tensor")
        return [result]
    wanted: Any = {"tuple": tuple, "list": list}[kind]
    if type(result) is not wanted or len(result) != len(expected):
        found = f"{_name(result)} of {len(result)}" if hasattr(result, "__len__") else _name(result)
        raise Refused(
            "wrong_type", f"{path} is a {found}, expected a {kind} of {len(expected)} tensors"
        )
    pairs = zip(result, expected, strict=True)
    return [leaf for i, (r, e) in enumerate(pairs) for leaf in leaves(r, e, f"{path}[{i}]")]


def _name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def refuse_unfit(tensor: torch.Tensor, spec: TensorSpec, device: torch.device) -> None:
    """Shape, dtype and device exactly as the reference's; nothing broadcasts, nothing is cast."""
    shape = tuple(_size(tensor))
    if shape != spec.shape:
        raise Refused("wrong_shape", f"returned shape {shape}, expected {spec.shape}")
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype != spec.dtype:
        raise Refused("wrong_dtype", f"returned dtype {dtype}, expected {spec.dtype}")
    if tensor.layout is not torch.strided or tensor.device != device:
        raise Refused(
            "wrong_type",
            f"returned a {tensor.layout} tensor on {tensor.device}, expected strided on {device}",
        )


def place(
    results: Sequence[torch.Tensor],
    specs: Sequence[TensorSpec],
    outputs: Sequence[torch.Tensor],
    writable: Sequence[tuple[int, torch.Tensor]],
) -> list[str]:
    """Copy each result into its output buffer, unless it already lies in a writable input.

    Returns where the judge finds each: "input:6" or "output:0".
    """
    where = []
    for index, (result, spec, output) in enumerate(zip(results, specs, outputs, strict=True)):
        refuse_unfit(result, spec, output.device)
        home = next((i for i, t in writable if _same_place(result, t)), None)
        if home is None:
            with torch.no_grad():
                _copy(output, _detach(result))
            where.append(f"output:{index}")
        else:
            where.append(f"input:{home}")
    return where


def _same_place(a: torch.Tensor, b: torch.Tensor) -> bool:
    return _pointer(a) == _pointer(b) and _size(a) == _size(b) and _stride(a) == _stride(b)
