"""Worker's half of the exchange through host memory: copies, flush, its own events."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from harness import emulation
from harness.devices import bodies, collect, observe
from harness.devices.cpu_lane import map_shared
from harness.exchange import rebuild, spec_from_json, view_as

_clock_ns = time.perf_counter_ns


class CudaHostLane:
    """Device copies of one set of shared host buffers."""

    def __init__(self, order: dict[str, Any], descriptors: Sequence[int]) -> None:
        self._inputs = [spec_from_json(spec) for spec in order["inputs"]]
        self._outputs = [spec_from_json(spec) for spec in order["outputs"]]
        self._tree, self._result_tree = order["tree"], order["result_tree"]
        self._writable: list[int] = order["writable"]
        specs = self._inputs + self._outputs
        self._host = [map_shared(d, s) for d, s in zip(descriptors, specs, strict=True)]
        self._device = [torch.empty_like(host, device="cuda") for host in self._host]
        self._begin, self._end = bodies.events(2)
        self._bodies = bodies.Bodies(0)
        l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        self._flush = torch.zeros(4 * l2_bytes, dtype=torch.uint8, device="cuda")

    def settle(self) -> None:
        torch.cuda.synchronize()

    def close(self) -> None:
        """The maps go when the last tensor over them does."""

    def _arguments(self) -> tuple[Any, list[tuple[int, torch.Tensor]]]:
        count = len(self._inputs)
        for host, device in zip(self._host, self._device, strict=True):
            device.copy_(host)
        tensors = [view_as(d, s) for d, s in zip(self._device[:count], self._inputs, strict=True)]
        writable = [(i, view_as(self._device[i], self._inputs[i])) for i in self._writable]
        return rebuild(self._tree, tensors), writable

    def call(self, kernel: Callable[[Any], Any] | None, order: dict[str, Any]) -> dict[str, Any]:
        assert kernel is not None
        data, writable = self._arguments()
        count = len(self._inputs)
        results = [view_as(d, s) for d, s in zip(self._device[count:], self._outputs, strict=True)]
        half = self._flush.numel() // 2
        self._bodies.fill(self._flush[:half], order["seq"])
        self._bodies.read(self._flush[half:])
        torch.cuda.synchronize()
        start_ns = _clock_ns()
        self._begin.record()
        result = kernel(data)
        host_ns = _clock_ns() - start_ns
        leaves = collect.leaves(result, self._result_tree)
        where = collect.place(leaves, self._outputs, results, writable)
        self._end.record()
        torch.cuda.synchronize()
        # Back to where the judge looks: inputs too, so that a changed one is seen.
        for host, device in zip(self._host, self._device, strict=True):
            host.copy_(device)
        return {
            "claimed_ns": max(0, round(self._begin.elapsed_time(self._end) * 1e6)),
            "host_ns": max(0, host_ns),
            "where": where,
            "facts": ["emulated"] if emulation.used() else [],
        }

    def observe(self, kernel: Callable[[Any], Any] | None, order: dict[str, Any]) -> dict[str, Any]:
        assert kernel is not None
        data, _ = self._arguments()
        return observe.calls(kernel, [data] * order["repeats"], order["trace"], cuda=True)
