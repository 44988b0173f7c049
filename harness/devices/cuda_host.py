"""CUDA where device memory cannot be exported (WSL2, some containers): host memory and copies.

Checks as strictly as cuda.py.  Its times are the worker's own events, which the judge cannot bound
to a percent, so such a run carries the doubt `host exchange` and is not ranked.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from cuda.bindings import driver as cuda

from harness import machine
from harness.devices import driver, nvml
from harness.devices.cpu import CpuExchange
from harness.exchange import raw_bytes
from harness.model import Block, Clock, DeviceInfo, Doubt, Failed, Verdict
from harness.session import Session
from harness.timing import Estimate
from harness.window import (
    Answer,
    Audited,
    Frame,
    Observation,
    Prepared,
    Unbracketed,
    Window,
    observed,
    parse_where,
)


def exportable(index: int) -> bool:
    """Whether this device can share memory by descriptor and signal through it."""
    attribute = cuda.CUdevice_attribute
    wanted = (
        attribute.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
        attribute.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    )
    torch.cuda.init()  # type: ignore[no-untyped-call]
    return all(driver.check(cuda.cuDeviceGetAttribute(a, index)) for a in wanted)


class HostCudaDevice(Unbracketed):
    """One GPU; inputs and outputs go through host memory that both processes map."""

    clock = Clock.WORKER
    tick_ns = 32.0
    warm_up = (5, 40)

    def __init__(self, index: int) -> None:
        self._index = index
        self.name = f"cuda:{index}"
        self._gpu = nvml.Gpu.open(index)
        self._others = self._gpu.other_processes()
        torch.cuda.set_device(index)

    def describe(self) -> DeviceInfo:
        p = torch.cuda.get_device_properties(self._index)
        facts = (("capability", f"{p.major}.{p.minor}"), *self._gpu.facts())
        return DeviceInfo("cuda", p.name, facts)

    def environment(self) -> tuple[tuple[str, str], ...]:
        return (*machine.versions(), ("cuda", str(torch.version.cuda)))

    def doubts(self) -> tuple[Doubt, ...]:
        shared = (Doubt.SHARED_GPU,) if self._others or self._gpu.shares() else ()
        return (Doubt.HOST_EXCHANGE, *shared)

    def notes(self) -> tuple[str, ...]:
        return (*self._others, *self._gpu.shares())

    def exchange(self, frame: Frame, slots: int) -> CpuExchange:
        return CpuExchange(frame)

    def window(
        self,
        session: Session,
        exchange: CpuExchange,
        prepared: Prepared,
        *,
        timeout_ns: int,
        timed: bool,
    ) -> Window | Failed:
        """One call: the worker copies its inputs to the GPU, flushes, calls, copies back."""
        tensors = [raw_bytes(tensor).cpu() for tensor in prepared.tensors]
        exchange.load(tensors)
        start_ns = time.monotonic_ns()
        reply = session.order("call", timeout_ns=timeout_ns, slot=0, body="", flag=0)
        if isinstance(reply, Failed):
            return reply
        where = parse_where(reply["where"], prepared.frame)
        if where is None:
            return Failed(Verdict.PROTOCOL_ERROR, "the worker process named no output buffer")
        outputs = tuple(copy.to(self.name) for copy in exchange.snapshot(where))
        answer = Answer(outputs, tuple(exchange.changed(tensors)), exchange.intact())
        return Window(
            elapsed_ns=reply["claimed_ns"],
            claimed_ns=reply["claimed_ns"],
            host_ns=reply["host_ns"],
            answer=answer,
            tripped=False,
            late=False,
            facts=tuple(reply["facts"]),
            flush_ns=reply.arrived_ns - start_ns,
        )

    def observe(
        self,
        session: Session,
        exchange: CpuExchange,
        prepared: Prepared,
        *,
        repeats: int,
        trace: str,
    ) -> Observation | Failed:
        exchange.load([raw_bytes(tensor).cpu() for tensor in prepared.tensors])
        return observed(session, repeats=repeats, trace=trace)

    def disturbance(self) -> str | None:
        return next(iter(self._others), None)

    def recover(self) -> None:
        torch.cuda.synchronize()

    def audit(self, process: int, windows: Sequence[Window]) -> Audited | Failed:
        """The worker's word, kept as such; the wall time around it refutes only the absurd."""
        liars = [w for w in windows if w.claimed_ns > w.flush_ns]
        if liars:
            return Failed(Verdict.TAMPERED, "it reported more time than had passed")
        claims = tuple(w.claimed_ns for w in windows)
        block = Block(
            process=process,
            calls=1,
            window_ns=claims,
            claimed_ns=claims,
            host_ns=tuple(w.host_ns for w in windows),
        )
        now = self._gpu.clocks()
        samples = tuple(float(max(1, ns)) for ns in claims)
        return Audited(Estimate(process, samples), (replace(block, after=now),))
