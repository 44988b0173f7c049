"""The buffers that judge and worker share, and how `data` is laid over them.

Every tensor of `data` has an allocation of its own, between guard bands; nothing secret ever lies
in one (tests/exploits/zoo/d4_neighbour_scan.py).  The worker gets dtype, shape, stride and place as
JSON and rebuilds the views.  Runs in both processes, so it imports only torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

#: Bytes before and after the payload that nobody may touch.  A page: payloads stay page-aligned.
GUARD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor without its bytes: strides in elements, `span_bytes` from its first to last byte."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    span_bytes: int

    @property
    def allocation_bytes(self) -> int:
        payload = -(-max(self.span_bytes, 1) // GUARD_BYTES) * GUARD_BYTES
        return payload + 2 * GUARD_BYTES


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    span = (reach + 1) * tensor.element_size() if tensor.numel() else 0
    return TensorSpec(
        str(tensor.dtype).removeprefix("torch."),
        tuple(tensor.shape),
        tuple(tensor.stride()),
        span,
    )


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's span as flat uint8 [span_bytes], sharing its memory."""
    span = spec_of(tensor).span_bytes
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    offset = tensor.storage_offset() * tensor.element_size()
    return flat.set_(tensor.untyped_storage(), offset, (span,), (1,))


def view_as(payload: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Lay a spec over flat uint8 bytes, sharing their memory."""
    dtype = getattr(torch, spec.dtype)
    if spec.span_bytes == 0:
        return torch.empty(spec.shape, dtype=dtype, device=payload.device)
    typed = payload[: spec.span_bytes].view(dtype)
    return typed.as_strided(spec.shape, spec.stride)


def describe(data: Any) -> tuple[Any, list[torch.Tensor]]:
    """Split `data` into a JSON tree and its tensors, in order.

    Tuples, lists, dicts with string keys, tensors, numbers, strings, bools and None may nest.
    Raises TypeError for anything else.
    """
    tensors: list[torch.Tensor] = []

    def walk(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return {"tensor": len(tensors) - 1}
        if isinstance(value, tuple):
            return {"tuple": [walk(item) for item in value]}
        if isinstance(value, list):
            return {"list": [walk(item) for item in value]}
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {"dict": [[key, walk(item)] for key, item in value.items()]}
        if value is None or isinstance(value, bool | int | float | str):
            return {"value": value}
        raise TypeError(f"generate_input returned a {type(value).__name__}, which cannot be shared")

    return walk(data), tensors


def rebuild(tree: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Undo `describe`."""
    ((kind, value),) = tree.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "tuple":
        return tuple(rebuild(item, tensors) for item in value)
    if kind == "list":
        return [rebuild(item, tensors) for item in value]
    if kind == "dict":
        return {key: rebuild(item, tensors) for key, item in value}
    return value


def spec_to_json(spec: TensorSpec) -> list[Any]:
    return [spec.dtype, list(spec.shape), list(spec.stride), spec.span_bytes]


def spec_from_json(data: Sequence[Any]) -> TensorSpec:
    dtype, shape, stride, span = data
    return TensorSpec(dtype, tuple(shape), tuple(stride), span)
