"""Bodies of known length, run through the real window in a worker that has no submission yet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from harness import stats
from harness.devices import calibration as clocks
from harness.devices.calibration import Calibration
from harness.errors import DeviceError
from harness.exchange import TensorSpec
from harness.model import Failed
from harness.window import Frame, Prepared, Window

if TYPE_CHECKING:
    from harness.devices.cuda import CudaDevice
    from harness.devices.cuda_exchange import CudaExchange
    from harness.session import Session

#: As much as an H200's L2 holds: a read of it meets DRAM, as the shipped task's kernels do.
CALIBRATION_BYTES = 64 << 20
SPIN_CYCLES = 20_000
#: Windows of the first body that are thrown away, in which the clock rises; then of every body, in
#: the first of which its kernel is loaded.
WARM_WINDOWS, LOAD_WINDOWS = 4, 1
#: Calls that CUPTI watches; the times of cold reads scatter by 1.5%.
CUPTI_CALLS = 30
TIMEOUT_NS = 10_000_000_000


def calibrate(device: CudaDevice, session: Session) -> Calibration:
    """What the judge's bracket and the worker's events read around nothing, a spin and reads."""
    few, many = device.l2_bytes // 2, 2 * device.l2_bytes
    names = (
        *("null", "spin:0", f"spin:{SPIN_CYCLES}"),
        *(f"read:{CALIBRATION_BYTES}", f"load:{few}", f"load:{many}"),
    )
    size = max(CALIBRATION_BYTES, many)
    taken = windows_of(device, session, names, size, clocks.WINDOWS)
    pair, empty, spin, read, load_few, load_many = taken
    (waiting,) = windows_of(
        device, session, (f"spin:{SPIN_CYCLES}",), 4096, clocks.WINDOWS, as_waiting=True
    )
    pair_ns = stats.median([float(w.claimed_ns) for w in pair])
    return Calibration(
        compute=_overhead(spin),
        memory=_overhead(read),
        cached=_overhead([*load_few, *load_many]),
        waiting=_overhead(waiting),
        empty_pair_ns=pair_ns,
        empty_kernel_ns=stats.median([float(w.claimed_ns) for w in empty]) - pair_ns,
        flush_ns=stats.median([float(w.flush_ns) for windows in taken for w in windows]),
    )


def published(
    device: CudaDevice,
    session: Session,
    bodies: Sequence[str],
    size: int,
    windows: int,
    by_cupti: Sequence[str] = (),
) -> tuple[dict[str, float], dict[str, float | None]]:
    """Published time of each body in ns, audited as a submission's would be; some by CUPTI as well.

    Over one and the same buffer: where it lies moves the time of a read by a percent.  The bodies
    take turns: what an event pair reads wanders by 0.1 us within seconds.
    Raises DeviceError when the audit refuses one.
    """
    found = {}
    with _exchange(device, session, size) as (exchange, prepared):
        taken = _in_turn(device, session, exchange, prepared, bodies, windows)
        for body, of_body in zip(bodies, taken, strict=True):
            audited = device.audit(0, of_body)
            if isinstance(audited, Failed):
                raise DeviceError(f"{device.name}: {body}: {audited.message}")
            found[body] = stats.median(audited.estimate.samples_ns)
        durations = {
            body: _cupti_ns(device, session, exchange, prepared, body) for body in by_cupti
        }
    return found, durations


def clock_hz(device: CudaDevice, session: Session) -> float:
    """SM clock in Hz while busy: the difference of two long spins of known cycles."""
    few, many = 2_000_000, 12_000_000
    taken = windows_of(device, session, (f"spin:{few}", f"spin:{many}"), 4096, 8)
    short_ns, long_ns = (stats.median([float(w.claimed_ns) for w in ws]) for ws in taken)
    return (many - few) / ((long_ns - short_ns) / 1e9)


def _cupti_ns(
    device: CudaDevice, session: Session, exchange: CudaExchange, prepared: Prepared, body: str
) -> float | None:
    """CUPTI's median duration of a body, the L2 flushed before each call; None if it saw none."""
    seen = device.observe(session, exchange, prepared, repeats=CUPTI_CALLS, trace="", body=body)
    times = [] if isinstance(seen, Failed) else [float(a.duration_ns) for a in seen.activities]
    return stats.median(times[2:]) if len(times) > 2 else None


def windows_of(
    device: CudaDevice,
    session: Session,
    bodies: Sequence[str],
    size: int,
    windows: int,
    *,
    as_waiting: bool = False,
) -> list[list[Window]]:
    """So many windows of each body over one buffer of `size` bytes.  Raises DeviceError."""
    with _exchange(device, session, size) as (exchange, prepared):
        return _taken(device, session, exchange, prepared, bodies, windows, as_waiting=as_waiting)


def _taken(
    device: CudaDevice,
    session: Session,
    exchange: CudaExchange,
    prepared: Prepared,
    bodies: Sequence[str],
    windows: int,
    *,
    as_waiting: bool = False,
) -> list[list[Window]]:
    found: list[list[Window]] = []
    for body in bodies:
        thrown = LOAD_WINDOWS if found else WARM_WINDOWS
        taken = [
            _window(device, session, exchange, prepared, body, as_waiting=as_waiting)
            for _ in range(windows + thrown)
        ]
        found.append(taken[thrown:])
    return found


def _in_turn(
    device: CudaDevice,
    session: Session,
    exchange: CudaExchange,
    prepared: Prepared,
    bodies: Sequence[str],
    windows: int,
) -> list[list[Window]]:
    """As `_taken`, but a window of each body in every round, so that drift meets all alike."""
    for body in (*[bodies[0]] * WARM_WINDOWS, *[*bodies] * LOAD_WINDOWS):
        _window(device, session, exchange, prepared, body)
    rounds = [
        [_window(device, session, exchange, prepared, body) for body in bodies]
        for _ in range(windows)
    ]
    return [list(of_body) for of_body in zip(*rounds, strict=True)]


def _window(
    device: CudaDevice,
    session: Session,
    exchange: CudaExchange,
    prepared: Prepared,
    body: str,
    *,
    as_waiting: bool = False,
) -> Window:
    window = device.window(
        session,
        exchange,
        prepared,
        timeout_ns=TIMEOUT_NS,
        timed=False,
        body=body,
        as_waiting=as_waiting,
    )
    if isinstance(window, Failed):
        raise DeviceError(f"{device.name}: calibration failed: {window.message}")
    return window


@contextlib.contextmanager
def _exchange(
    device: CudaDevice, session: Session, size: int
) -> Iterator[tuple[CudaExchange, Prepared]]:
    """One buffer of random bytes, mapped by the worker."""
    spec = TensorSpec("uint8", (size,), (1,), size)
    answer = TensorSpec("uint8", (16,), (1,), 16)
    frame = Frame({"tuple": [{"tensor": 0}]}, (spec,), {"tensor": 0}, (answer,), ())
    source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=device.name)
    exchange = device.exchange(frame, 1)
    try:
        reply = session.order(
            "map",
            timeout_ns=TIMEOUT_NS,
            descriptors=exchange.descriptors(),
            sizes=exchange.sizes(),
            **frame.to_order(1),
        )
        if isinstance(reply, Failed):
            raise DeviceError(f"{device.name}: memory cannot be shared: {reply.message}")
        yield exchange, Prepared(frame, None, (source,), (), None, None, None)
    finally:
        exchange.close()


def _overhead(windows: Sequence[Window]) -> clocks.Overhead:
    return clocks.overhead([w.elapsed_ns for w in windows], [w.claimed_ns for w in windows])
