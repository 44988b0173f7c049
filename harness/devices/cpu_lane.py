"""Worker's half of the CPU exchange: shared memory that came as descriptors."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from harness import emulation
from harness.devices import collect, observe
from harness.exchange import GUARD_BYTES, TensorSpec, rebuild, spec_from_json, view_as

_clock_ns = time.perf_counter_ns


def map_shared(descriptor: int, spec: TensorSpec) -> torch.Tensor:
    """Map one allocation and return its payload as flat uint8."""
    memory = mmap.mmap(descriptor, spec.allocation_bytes)
    flat = torch.frombuffer(memory, dtype=torch.uint8)
    return flat[GUARD_BYTES : GUARD_BYTES + spec.span_bytes]


class CpuLane:
    """One set of buffers, one call at a time."""

    def __init__(self, order: dict[str, Any], descriptors: Sequence[int]) -> None:
        inputs = [spec_from_json(spec) for spec in order["inputs"]]
        self._outputs = [spec_from_json(spec) for spec in order["outputs"]]
        self._tree, self._result_tree = order["tree"], order["result_tree"]
        self._writable: list[int] = order["writable"]
        specs = inputs + self._outputs
        payloads = [map_shared(d, s) for d, s in zip(descriptors, specs, strict=True)]
        self._inputs = list(zip(payloads, inputs, strict=False))
        self._results = [
            view_as(p, s) for p, s in zip(payloads[len(inputs) :], self._outputs, strict=True)
        ]

    def settle(self) -> None:
        """CPU calls are finished when they return."""

    def close(self) -> None:
        """The maps go when the last tensor over them does."""

    def observe(self, kernel: Callable[[Any], Any] | None, order: dict[str, Any]) -> dict[str, Any]:
        """Run calls under torch's profiler: operators take the place of kernels."""
        assert kernel is not None
        tensors = [view_as(payload, spec) for payload, spec in self._inputs]
        return observe.calls(
            kernel, [rebuild(self._tree, tensors)] * order["repeats"], order["trace"], cuda=False
        )

    def call(self, kernel: Callable[[Any], Any] | None, order: dict[str, Any]) -> dict[str, Any]:
        assert (
            kernel is not None
        )  # the CPU needs no calibration, so nothing comes before the import
        # Fresh views and containers each call: a submission may keep or change the last ones.
        tensors = [view_as(payload, spec) for payload, spec in self._inputs]
        data = rebuild(self._tree, tensors)
        writable = [(i, view_as(*self._inputs[i])) for i in self._writable]
        start = _clock_ns()
        result = kernel(data)
        elapsed = _clock_ns() - start
        results = collect.leaves(result, self._result_tree)
        where = collect.place(results, self._outputs, self._results, writable)
        return {
            "claimed_ns": max(0, elapsed),
            "host_ns": max(0, elapsed),
            "where": where,
            "facts": ["emulated"] if emulation.used() else [],
        }
