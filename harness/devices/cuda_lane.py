"""Worker's half of the CUDA exchange: imported device memory, signals, its own events."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from harness import emulation
from harness.devices import bodies, collect, driver, observe
from harness.exchange import GUARD_BYTES, rebuild, spec_from_json, view_as
from harness.faults import Refused
from harness.wire import Channel

_clock_ns = time.perf_counter_ns
_DEVICE = 0  # a worker sees one GPU


def start() -> list[str]:
    """Create the CUDA context and name the device."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    torch.zeros(1, device="cuda")
    return [torch.cuda.get_device_name(_DEVICE)]


class CudaLane:
    """`slots` sets of buffers of one shape, and one page of signals."""

    def __init__(self, order: dict[str, Any], descriptors: Sequence[int], channel: Channel) -> None:
        self._channel = channel
        self._inputs = [spec_from_json(spec) for spec in order["inputs"]]
        self._outputs = [spec_from_json(spec) for spec in order["outputs"]]
        self._tree, self._result_tree = order["tree"], order["result_tree"]
        self._writable: list[int] = order["writable"]
        *shared, kernels = zip(descriptors, order["sizes"], strict=True)
        self._maps = [driver.import_shared(fd, size, _DEVICE) for fd, size in shared]
        self._cubin = os.pread(kernels[0], kernels[1], 0)
        self._go, self._done = self._maps[0].address, self._maps[0].address + 64
        specs = self._inputs + self._outputs
        payloads = [
            m.bytes()[GUARD_BYTES : GUARD_BYTES + spec.span_bytes]
            for m, spec in zip(self._maps[1:], specs * order["slots"], strict=True)
        ]
        each = len(specs)
        self._slots = [payloads[i * each : (i + 1) * each] for i in range(order["slots"])]
        self._begin, self._end = bodies.events(2)
        self._bodies: bodies.Bodies | None = None

    def settle(self) -> None:
        torch.cuda.synchronize()

    def close(self) -> None:
        """The maps stay until the process ends: a submission may still hold tensors over them."""

    def call(self, kernel: Callable[[Any], Any] | None, order: dict[str, Any]) -> dict[str, Any]:
        """Queue the call behind the judge's signal, tell it so, then wait for the end."""
        own = kernel is None
        if own:
            kernel = bodies.parse(order["body"], self._own_bodies())
        assert kernel is not None
        data, results, writable = self._arguments(order["slot"])
        stream = torch.cuda.current_stream().cuda_stream
        driver.wait_signal(stream, self._go, order["flag"])
        self._begin.record()
        where: list[str] = []
        try:
            start_ns = _clock_ns()
            result = kernel(data)
            host_ns = _clock_ns() - start_ns
            if not own:
                leaves = collect.leaves(result, self._result_tree)
                where = collect.place(leaves, self._outputs, results, writable)
        finally:
            now = torch.cuda.current_stream().cuda_stream
            if now != stream:
                raise Refused("runtime_error", "it left another stream current than it found")
            self._end.record()
            driver.write_signal(stream, self._done, order["flag"])
        self._channel.send("queued", seq=order["seq"])
        self._end.synchronize()
        claimed_ns = round(self._begin.elapsed_time(self._end) * 1e6)
        return {
            "claimed_ns": max(0, claimed_ns),
            "host_ns": max(0, host_ns),
            "where": where,
            "facts": ["emulated"] if emulation.used() else [],
        }

    def observe(self, kernel: Callable[[Any], Any] | None, order: dict[str, Any]) -> dict[str, Any]:
        """Run calls under torch's profiler: which kernels, on which streams, by which calls."""
        data, _, _ = self._arguments(order["slot"])
        ours = self._own_bodies()
        if kernel is None:
            kernel = bodies.parse(order["body"], ours)
        l2_bytes = torch.cuda.get_device_properties(_DEVICE).L2_cache_size
        memory = torch.zeros(4 * l2_bytes, dtype=torch.uint8, device="cuda")

        def flush() -> None:
            ours.fill(memory[: 2 * l2_bytes], 1)
            ours.read(memory[2 * l2_bytes :])

        torch.cuda.synchronize()
        return observe.calls(
            kernel, [data] * order["repeats"], order["trace"], cuda=True, before=flush
        )

    def _arguments(
        self, slot: int
    ) -> tuple[Any, list[torch.Tensor], list[tuple[int, torch.Tensor]]]:
        """Fresh views and containers: a submission may keep or change the last ones."""
        payloads = self._slots[slot]
        count = len(self._inputs)
        tensors = [view_as(p, s) for p, s in zip(payloads, self._inputs, strict=False)]
        results = [view_as(p, s) for p, s in zip(payloads[count:], self._outputs, strict=True)]
        writable = [(i, view_as(payloads[i], self._inputs[i])) for i in self._writable]
        return rebuild(self._tree, tensors), results, writable

    def _own_bodies(self) -> bodies.Bodies:
        if self._bodies is None:
            self._bodies = bodies.Bodies(_DEVICE, self._cubin)
        return self._bodies
