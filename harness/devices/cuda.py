"""Judge's half of CUDA: the window, the flush, the calibration."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import torch

from harness import machine, stats, tree
from harness.devices import calibration as clocks
from harness.devices import driver, floor, known, nvml
from harness.devices.bodies import Bodies, compiled, events
from harness.devices.calibration import Calibration
from harness.devices.cuda_exchange import CudaExchange
from harness.devices.patience import Patience, reached
from harness.devices.stamps import Stamps
from harness.errors import DeviceError
from harness.model import Clock, DeviceInfo, Doubt, Failed, Verdict
from harness.session import Session
from harness.window import (
    Audited,
    Frame,
    Observation,
    Prepared,
    Window,
    observed,
    parse_where,
)
from harness.wire import MAX_DESCRIPTORS

#: The flush writes, then reads back, this many times the L2.  Writing alone leaves dirty lines, and
#: their write-back is billed to whoever runs next: 2 to 5 us on this problem's shapes (H200).
FLUSH_L2_MULTIPLE = 4
#: A context switch costs over 100 us, so nobody can use the GPU unseen for less (H200).
TRIP_NS = 100_000
#: How long a stream's last word may take behind a worker's "done": some us, where it is true.
LAST_WORD_NS = 2_000_000_000
#: How long a killed worker's context may take to be torn down (54 ms on an H200).
DRAIN_NS = 5_000_000_000
#: A read of a few hundred MB reaches 0.8 of the bandwidth of one of 4 GiB; half is a sick GPU.
SLOW_SHARE = 2.0
#: Sets of buffers that timed calls take turns in.  In one set alone, medians of 50 calls lay 0.13
#: to 0.25 us apart from process to process, where the calls' own scatter makes 0.04 to 0.09 (H200).
BUFFER_SETS = 8
#: What these sets may take together.
ROTATION_BYTES = 4 << 30
#: The signals and our kernels, of the descriptors that one message can carry.
OUR_DESCRIPTORS = 2


class CudaDevice:
    """One GPU of this machine, owned by the judge's context."""

    clock = Clock.WORKER
    tick_ns = 32.0  # smallest difference between two event times (H200, driver 580)
    warm_up = (10, 60)

    def __init__(self, index: int) -> None:
        self._index = index
        self.name = f"cuda:{index}"
        self._gpu = nvml.Gpu.open(index)
        exclusive = self._gpu.exclusive()
        if exclusive is not None:
            raise DeviceError(f"cuda:{index}: {exclusive}")
        # Before we have a context of our own; the last run's may be on its way out.
        self._others = self._gpu.lasting_processes(DRAIN_NS)
        self._notes: list[str] = []
        self._before = self._gpu.clocks()
        torch.cuda.set_device(index)
        self._properties = torch.cuda.get_device_properties(index)
        cubin = compiled(index)
        self._bodies = Bodies(index, cubin)
        self._stamps = Stamps(index, cubin)
        self._kernels = _as_file(cubin)
        size = FLUSH_L2_MULTIPLE * self.l2_bytes
        self._dirty = torch.empty(size, dtype=torch.uint8, device=self.name)
        self._clean = torch.zeros(size, dtype=torch.uint8, device=self.name)
        self._hold = torch.zeros(32, dtype=torch.int32, device=self.name)
        self._side = torch.cuda.Stream(index)  # type: ignore[no-untyped-call]
        self._events = events(5)
        self._flag = 0
        self._patience = Patience()
        self._worker: int | None = None  # the top of the present worker's tree of processes
        self._calibration: Calibration | None = None
        self._free_bytes = 0
        # Now: beside a worker it would be that worker's to slow down.
        self._floor = floor.Floor(self._bodies, index, self._gpu.driver_version())
        self._floor.measure()

    @property
    def l2_bytes(self) -> int:
        return int(self._properties.L2_cache_size)

    def disturbance(self) -> str | None:
        """A process on this GPU that is neither ours nor the worker's, named with a remedy."""
        if self._worker is None:
            return None
        return self._gpu.stranger({self._worker, *tree.descendants(self._worker)})

    def recover(self) -> None:
        """Wait until the workers' memory is back, and see that the GPU still reads at its speed."""
        torch.cuda.synchronize()
        if set(self._gpu.lasting_processes(DRAIN_NS)) - set(self._others):
            self._notes.append(f"a worker still holds the GPU {DRAIN_NS // 10**9} s after its end")
        least_ns = min(self._timed(lambda: self._bodies.read(self._clean)) for _ in range(5))
        expected_ns = self._floor.floor_ns(self._clean.numel())
        if least_ns > SLOW_SHARE * expected_ns:
            self._notes.append(
                f"the GPU reads {least_ns / expected_ns:.1f}x slower than when it was measured; "
                "look at nvidia-smi -q before the next run"
            )

    # -- what this device is ---------------------------------------------------------------------

    def describe(self) -> DeviceInfo:
        p = self._properties
        facts = (
            ("capability", f"{p.major}.{p.minor}"),
            ("memory_bytes", str(p.total_memory)),
            ("l2_bytes", str(self.l2_bytes)),
            ("multiprocessors", str(p.multi_processor_count)),
            ("read_bandwidth_bytes_per_s", f"{self._floor.bandwidth():.0f}"),
            *self._gpu.facts(),
        )
        return DeviceInfo("cuda", p.name, facts)

    def environment(self) -> tuple[tuple[str, str], ...]:
        found = [*machine.versions(), ("cuda", str(torch.version.cuda))]
        if self._calibration is not None:
            c = self._calibration
            found += [
                ("event_pair_ns", f"{c.empty_pair_ns:.0f}"),
                ("empty_kernel_ns", f"{c.empty_kernel_ns:.0f}"),
                ("bracket_overhead_compute_ns", f"{c.compute.median_ns:.0f}"),
                ("bracket_overhead_memory_ns", f"{c.memory.median_ns:.0f}"),
                ("bracket_overhead_most_ns", f"{c.most_ns:.0f}"),
            ]
        return tuple(found)

    def doubts(self) -> tuple[Doubt, ...]:
        found = []
        if self._others or self._gpu.shares():
            found.append(Doubt.SHARED_GPU)
        if self._gpu.throttled():
            found.append(Doubt.THROTTLED)
        return tuple(found)

    def notes(self) -> tuple[str, ...]:
        return (*self._others, *self._gpu.shares(), *self._notes)

    def floor_ns(self, compulsory_bytes: int) -> float | None:
        return self._floor.floor_ns(compulsory_bytes)

    def measure_floor(self) -> None:
        self._gpu.lasting_processes(DRAIN_NS)  # a worker that was killed may be on its way out
        self._floor.measure()

    # -- the window ------------------------------------------------------------------------------

    def exchange(self, frame: Frame, slots: int) -> CudaExchange:
        self._before = self._gpu.clocks()
        exchange = CudaExchange(frame, slots, self._index, self._kernels)
        exchange.quiet_reveal_ns = self._time_reveal(exchange, frame)
        return exchange

    def buffer_sets(self, frame: Frame) -> int:
        specs = frame.inputs + frame.outputs
        # Most is left: a call's inputs and what is expected of it lie in private memory, too.
        room = min(ROTATION_BYTES, self._free_bytes // 8)
        sets = room // max(1, sum(spec.allocation_bytes for spec in specs))
        return max(1, min(BUFFER_SETS, sets, (MAX_DESCRIPTORS - OUR_DESCRIPTORS) // len(specs)))

    def _time_reveal(self, exchange: CudaExchange, frame: Frame) -> float:
        """ns of the reveal of one slot, undisturbed: no worker knows of these buffers yet."""
        sources = tuple(
            torch.empty(spec.span_bytes, dtype=torch.uint8, device=self.name)
            for spec in frame.inputs
        )
        prepared = Prepared(frame, None, sources, (), None, None, None)
        return stats.median([self._timed(lambda: exchange.reveal(prepared, 0)) for _ in range(3)])

    def _timed(self, body: Callable[[], None]) -> float:
        """ns of some work of the judge's, queued whole before it starts: no launch is in it."""
        self._flag += 1
        hold = self._hold.data_ptr()
        driver.wait_signal(torch.cuda.current_stream().cuda_stream, hold, self._flag)
        self._events[0].record()
        body()
        self._events[1].record()
        driver.write_signal(self._side.cuda_stream, hold, self._flag)
        self._events[1].synchronize()
        return float(self._events[0].elapsed_time(self._events[1])) * 1e6

    def window(
        self,
        session: Session,
        exchange: CudaExchange,
        prepared: Prepared,
        *,
        timeout_ns: int,
        timed: bool,
        body: str = "",
        as_waiting: bool = False,
    ) -> Window | Failed:
        """Gate closed, worker queued; then inputs in, L2 clean, gate open, stamp, snapshot.

        The worker's whole call is queued on its stream behind a signal before its inputs exist, so
        launch latency is not in the bracket and whatever runs ahead of the signal reads noise.
        `as_waiting`: with the bracket that calls get which wait for the device.
        """
        slot = exchange.turns.next()
        exchange.junk(slot)
        torch.cuda.synchronize()
        self._flag += 1
        seq = session.send("call", slot=slot, flag=self._flag, body=body)
        queued = session.peek("queued", seq, self._patience.ns)
        if isinstance(queued, Failed):
            self._release(exchange)
            return queued
        waited = queued is None
        self._patience.saw(waited=waited)
        taken = self._enqueue(exchange, prepared, slot, waited=waited or as_waiting)
        reply = session.finish(seq, timeout_ns, queued=not waited)
        if isinstance(reply, Failed):
            if not session.usable:
                session.close()  # first, so that nothing of it runs when our stream goes on
            self._release(exchange)
            return reply
        if not reached(self._events[4].query, LAST_WORD_NS):
            # Nothing else would end this wait (tests/exploits/zoo/a5_forged_done.py).
            session.close()
            self._release(exchange)
            message = 'its process said "done" before its stream was'
            return Failed(Verdict.PROTOCOL_ERROR, message)
        settled = session.order("idle", timeout_ns=timeout_ns)
        if isinstance(settled, Failed):
            return settled
        where: list[tuple[str, int]] | None = []
        if not body:
            where = parse_where(reply["where"], prepared.frame)
        if where is None:
            return Failed(Verdict.PROTOCOL_ERROR, "the worker process named no output buffer")
        elapsed = [a.elapsed_time(b) * 1e6 for a, b in pairwise(self._events)]
        return Window(
            elapsed_ns=self._stamps.elapsed_ns,
            claimed_ns=reply["claimed_ns"],
            host_ns=reply["host_ns"],
            answer=exchange.answer(taken, where, prepared, slot),
            tripped=timed
            and self._tripped(exchange.quiet_reveal_ns, elapsed[0], elapsed[1] + elapsed[2]),
            late=not exchange.unchanged_since(taken, slot),
            facts=tuple(reply["facts"]),
            waited=waited,
            flush_ns=round(elapsed[1]),
        )

    def _enqueue(
        self, exchange: CudaExchange, prepared: Prepared, slot: int, *, waited: bool
    ) -> list[torch.Tensor]:
        """Queue the judge's whole sequence behind a word of its own, then let it run unbroken."""
        try:
            return self._queue(exchange, prepared, slot, waited=waited)
        except BaseException:
            self._release(exchange)  # or whoever synchronises next waits for ever
            raise

    def _queue(
        self, exchange: CudaExchange, prepared: Prepared, slot: int, *, waited: bool
    ) -> list[torch.Tensor]:
        stream = torch.cuda.current_stream().cuda_stream
        hold = self._hold.data_ptr()
        taken = exchange.room()  # while nothing waits: a worker may have left no memory
        driver.reset_persisting_l2()
        if not waited:
            self._stamps.end(exchange.done, self._flag)
        driver.wait_signal(stream, hold, self._flag)
        self._events[0].record()
        exchange.reveal(prepared, slot)
        self._events[1].record()
        self._flush()
        self._events[2].record()
        self._stamps.begin()
        self._events[3].record()
        driver.write_signal(stream, exchange.go, self._flag)
        if waited:
            self._stamps.end_here(stream, exchange.done, self._flag)
        else:
            self._stamps.hold(stream, self._flag)
        self._events[4].record()
        exchange.snapshot(taken, slot)
        driver.write_signal(self._side.cuda_stream, hold, self._flag)
        return taken

    def _flush(self) -> None:
        self._bodies.fill(self._dirty, self._flag)
        self._bodies.read(self._clean)

    def _release(self, exchange: CudaExchange) -> None:
        """Open every gate of this window, so that no stream waits for a worker that is gone."""
        side = self._side.cuda_stream
        for address in (exchange.go, exchange.done, self._hold.data_ptr()):
            driver.write_signal(side, address, self._flag)
        self._stamps.release(self._flag)
        torch.cuda.synchronize()
        self._stamps.settle()

    def _tripped(self, quiet_ns: float, reveal_ns: float, flush_ns: float) -> bool:
        """Whether somebody else's work delayed ours between the reveal and the signal."""
        if self._calibration is None:
            return False
        return (
            reveal_ns > 1.1 * quiet_ns + TRIP_NS
            or flush_ns > 1.1 * self._calibration.flush_ns + TRIP_NS
        )

    def ordered(
        self,
        session: Session,
        exchange: CudaExchange,
        prepared: Prepared,
        *,
        timeout_ns: int,
    ) -> Window | Failed | None:
        """The same call with its inputs in place beforehand and all the time in the world.

        In the same buffers: what was right in other ones proves nothing (tests/gpu/test_honest.py).
        Right here and wrong in a window means that its work is not ordered with the current stream.
        """
        slot = exchange.turns.last
        self._flag += 1
        exchange.reveal(prepared, slot)
        stream = torch.cuda.current_stream().cuda_stream
        driver.write_signal(stream, exchange.go, self._flag)
        torch.cuda.synchronize()
        seq = session.send("call", slot=slot, flag=self._flag, body="")
        reply = session.finish(seq, timeout_ns, queued=False)
        if isinstance(reply, Failed):
            return reply
        settled = session.order("idle", timeout_ns=timeout_ns)
        where = parse_where(reply["where"], prepared.frame)
        if isinstance(settled, Failed) or where is None:
            return None
        taken = exchange.room()
        exchange.snapshot(taken, slot)
        answer = exchange.answer(taken, where, prepared, slot)
        return Window(0, 0, 0, answer, tripped=False, late=False)

    def observe(
        self,
        session: Session,
        exchange: CudaExchange,
        prepared: Prepared,
        *,
        repeats: int,
        trace: str,
        body: str = "",
    ) -> Observation | Failed:
        exchange.reveal(prepared, 0)
        torch.cuda.synchronize()
        return observed(session, repeats=repeats, trace=trace, body=body)

    # -- the clock -------------------------------------------------------------------------------

    @property
    def empty_pair_ns(self) -> float:
        """What two events with nothing between them read; taken off every published time."""
        assert self._calibration is not None
        return self._calibration.empty_pair_ns

    def calibrate(self, session: Session) -> None:
        """Run bodies of known length in the worker; the submission is not there yet."""
        # Before the submission can take any: the number of sets of buffers is not for it to say.
        self._free_bytes, _ = torch.cuda.mem_get_info(self._index)
        self._patience = Patience()
        self._worker = session.confined.pid
        self._calibration = None
        self._calibration = known.calibrate(self, session)

    @property
    def jitter_ns(self) -> float:
        return 0.0 if self._calibration is None else self._calibration.jitter_ns

    def net_ns(self, window: Window) -> float:
        """The judge's estimate of the calls' own time: its overhead is twenty times a short one."""
        assert self._calibration is not None
        return max(1.0, self._calibration.shortest_ns(window))

    def audit(self, process: int, windows: Sequence[Window]) -> Audited | Failed:
        assert self._calibration is not None
        found = clocks.audit(self._calibration, process, windows)
        if isinstance(found, Failed):
            return found
        now = self._gpu.clocks()
        blocks = tuple(replace(b, before=self._before, after=now) for b in found.blocks)
        return replace(found, blocks=blocks)


def _as_file(cubin: bytes) -> tuple[int, int]:
    """Descriptor and size of a sealed file in memory, which a worker can read and not change."""
    descriptor = os.memfd_create("kernels", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(descriptor, cubin)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor, len(cubin)
