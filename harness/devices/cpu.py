"""Judge's half of the CPU: shared memory, the monotonic clock around a call, what the CPU is."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from harness import machine, tree
from harness.devices.neighbours import SHARE, Neighbours
from harness.exchange import GUARD_BYTES, TensorSpec, raw_bytes, view_as
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

#: A worker that may shrink the file could make the judge die of SIGBUS on its next read
#: (tests/exploits/zoo/m6_shrink_shared_memory.py).
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class SharedBuffer:
    """One tensor's allocation: guard band, payload, guard band."""

    def __init__(self, spec: TensorSpec) -> None:
        self.spec = spec
        self.descriptor = os.memfd_create("harness", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, spec.allocation_bytes)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEALS)
        self._memory = mmap.mmap(self.descriptor, spec.allocation_bytes)
        flat = torch.frombuffer(self._memory, dtype=torch.uint8)
        self.payload = flat[GUARD_BYTES : GUARD_BYTES + spec.span_bytes]
        self._before = flat[:GUARD_BYTES]
        self._after = flat[GUARD_BYTES + spec.span_bytes :]
        self._band = torch.frombuffer(bytearray(os.urandom(self._after.numel())), dtype=torch.uint8)
        self._before.copy_(self._band[:GUARD_BYTES])
        self._after.copy_(self._band)

    def intact(self) -> bool:
        """Whether nobody wrote outside the payload."""
        return torch.equal(self._before, self._band[:GUARD_BYTES]) and torch.equal(
            self._after, self._band
        )

    def copy(self) -> torch.Tensor:
        """The payload in private memory, by this thread: torch's copy wakes others while the clock
        runs (0.06 ms for 256 kB)."""
        copy = torch.empty(self.spec.span_bytes, dtype=torch.uint8)
        copy.numpy()[:] = self.payload.numpy()
        return copy

    def close(self) -> None:
        os.close(self.descriptor)


class CpuExchange:
    """The buffers of one shape.  Inputs are loaded and outputs poisoned before every call."""

    def __init__(self, frame: Frame) -> None:
        self._inputs = [SharedBuffer(spec) for spec in frame.inputs]
        self._outputs = [SharedBuffer(spec) for spec in frame.outputs]
        self._writable = frame.writable

    def descriptors(self) -> list[int]:
        return [buffer.descriptor for buffer in self._inputs + self._outputs]

    def sizes(self) -> list[int]:
        return [buffer.spec.allocation_bytes for buffer in self._inputs + self._outputs]

    def load(self, tensors: Sequence[torch.Tensor]) -> None:
        """Copy the private inputs in, and bury every place an output may come from.

        What a submission may write is never copied in: the reference may have answered there.
        """
        for index, (buffer, tensor) in enumerate(zip(self._inputs, tensors, strict=True)):
            if index in self._writable:
                poison(buffer.payload)
            else:
                buffer.payload.copy_(raw_bytes(tensor))
        for buffer in self._outputs:
            poison(buffer.payload)

    def changed(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        """Which inputs that must not be written no longer hold what was loaded."""
        pairs = enumerate(zip(self._inputs, tensors, strict=True))
        return [
            i
            for i, (buffer, tensor) in pairs
            if i not in self._writable and not torch.equal(buffer.payload, raw_bytes(tensor))
        ]

    def intact(self) -> bool:
        return all(buffer.intact() for buffer in self._inputs + self._outputs)

    def snapshot(self, where: Sequence[tuple[str, int]]) -> list[torch.Tensor]:
        """Private copies of the outputs, laid out as their specs say."""
        buffers = {"input": self._inputs, "output": self._outputs}
        found = [buffers[kind][index] for kind, index in where]
        return [view_as(buffer.copy(), buffer.spec) for buffer in found]

    def close(self) -> None:
        for buffer in self._inputs + self._outputs:
            buffer.close()


class CpuDevice(Unbracketed):
    """The processor this judge runs on."""

    name = "cpu"
    clock = Clock.HOST
    tick_ns = 1.0
    warm_up = (1, 1)

    def __init__(self) -> None:
        self._neighbours = Neighbours()

    def describe(self) -> DeviceInfo:
        return describe()

    def environment(self) -> tuple[tuple[str, str], ...]:
        return machine.versions()

    def doubts(self) -> tuple[Doubt, ...]:
        share = self._neighbours.share()
        return (Doubt.SHARED_CPU,) if share is not None and share > SHARE else ()

    def notes(self) -> tuple[str, ...]:
        return ()

    def observe(
        self,
        session: Session,
        exchange: CpuExchange,
        prepared: Prepared,
        *,
        repeats: int,
        trace: str,
    ) -> Observation | Failed:
        exchange.load(prepared.tensors)
        return observed(session, repeats=repeats, trace=trace)

    def disturbance(self) -> str | None:
        """None: the processor is always shared, and a worker is stopped, not suspected."""
        return None

    def recover(self) -> None:
        """Memory and processor time went with the processes."""

    def audit(self, process: int, windows: Sequence[Window]) -> Audited | Failed:
        """The judge's own clock is what is published; the worker's figure is kept beside it."""
        elapsed = tuple(window.elapsed_ns for window in windows)
        block = Block(
            process=process,
            calls=1,
            window_ns=elapsed,
            claimed_ns=tuple(window.claimed_ns for window in windows),
            host_ns=tuple(window.host_ns for window in windows),
        )
        return Audited(Estimate(process, tuple(map(float, elapsed))), (block,))

    def exchange(self, frame: Frame, slots: int) -> CpuExchange:
        """Allocate the buffers of one shape: one set, however many are asked for."""
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
        """One call on fresh inputs, the judge's monotonic clock around it.

        A worker that computes while its inputs are being written would do the work before the
        clock starts (tests/exploits/zoo/b8_work_in_the_gap.py, b4_resident_daemon.py), so all of
        its processes are stopped until it has.  A window is `tripped` in which not all would stop,
        some came or went, or one was given a processor all the same, which woke itself or was
        woken (b8_wakes_itself.py, b8_born_in_the_walk.py).  That is read when our clock runs:
        between the two is no gap to work in.

        The clock stops when the judge has its copy of the output, not when it hears "done": what
        is done between the two is no gift (tests/exploits/zoo/a5_done_among_many.py).
        """
        tripped = False
        with contextlib.ExitStack() as held:
            if timed:
                wait_until_quiet(session)
                stopped = held.enter_context(session.confined.stopped())
            exchange.load(prepared.tensors)
            start_ns = time.monotonic_ns()
            if timed:
                moved = tree.turns(session.confined.members()) != stopped.turns
                tripped = moved or not stopped.still
            seq = session.send("call", slot=0, body="")
        reply = session.expect("done", seq, timeout_ns, what="call")
        if isinstance(reply, Failed):
            return reply
        where = parse_where(reply["where"], prepared.frame)
        if where is None:
            return Failed(Verdict.PROTOCOL_ERROR, "the worker process named no output buffer")
        outputs = exchange.snapshot(where)
        end_ns = time.monotonic_ns()
        if timed:
            self._neighbours.look(session.confined)
        answer = Answer(
            tuple(outputs), tuple(exchange.changed(prepared.tensors)), exchange.intact()
        )
        late = any(
            not torch.equal(raw_bytes(a), raw_bytes(b))
            for a, b in zip(outputs, exchange.snapshot(where), strict=True)
        )
        return Window(
            elapsed_ns=end_ns - start_ns,
            claimed_ns=reply["claimed_ns"],
            host_ns=reply["host_ns"],
            answer=answer,
            tripped=tripped,
            late=late,
            facts=tuple(reply["facts"]),
        )


#: Processor time in 2 ms that is work, and no thread that looks for some.
BUSY_FLOOR_NS = 100_000
#: OpenMP threads spin for a moment after a parallel region; wait that long, no longer.
QUIET_NS = 200_000_000


def wait_until_quiet(session: Session) -> None:
    """Return once the worker's processes have used no processor time for 2 ms, or after 0.2 s."""
    until_ns = time.monotonic_ns() + QUIET_NS
    used = tree.clocks(session.confined.members())
    while time.monotonic_ns() < until_ns:
        time.sleep(0.002)
        now = tree.clocks(session.confined.members())
        if not _worked(used, now):
            return
        used = now


def _worked(before: Mapping[int, int], after: Mapping[int, int]) -> bool:
    """Whether processes used the processor between two readings of their clocks, came or went."""
    if before.keys() != after.keys():
        return True
    return sum(after.values()) - sum(before.values()) > BUSY_FLOOR_NS


def poison(payload: torch.Tensor) -> None:
    """Fill with one random byte pair that reads as NaN in fp16, bf16, fp32 and fp64.

    Stale or unwritten output can then neither be right nor be guessed (ATTACKS D1 to D3).
    """
    low, high = os.urandom(2)
    pair = bytes([low | 0x81, high | 0x7F])
    pattern = torch.frombuffer(bytearray(pair * 2048), dtype=torch.uint8)
    whole = payload.numel() // len(pattern)
    payload[: whole * len(pattern)].view(whole, len(pattern)).copy_(pattern)
    payload[whole * len(pattern) :].copy_(pattern[: payload.numel() % len(pattern)])


def describe() -> DeviceInfo:
    """This machine's processor, as /proc/cpuinfo and the system name it."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0))
    facts = (
        ("cores", str(cores)),
        ("threads", str(torch.get_num_threads())),
        ("kernel", platform.release()),
        ("clock_resolution_ns", str(int(time.get_clock_info("monotonic").resolution * 1e9))),
    )
    return DeviceInfo("cpu", models[0] if models else name, facts)
