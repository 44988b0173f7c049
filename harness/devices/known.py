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
#: Windows of each body that are thrown away: the first ones load modules and raise the clock.
WARM_WINDOWS = 4
TIMEOUT_NS = 10_000_000_000


def calibrate(device: CudaDevice, session: Session) -> Calibration:
    """What the judge's bracket and the worker's events read around nothing, a spin and a read."""
    names = ("null", "spin:0", f"spin:{SPIN_CYCLES}", f"read:{CALIBRATION_BYTES}")
    pair, empty, spin, read = windows_of(device, session, names, CALIBRATION_BYTES, clocks.WINDOWS)
    pair_ns = stats.median([float(w.claimed_ns) for w in pair])
    return Calibration(
        compute=_overhead(spin),
        memory=_overhead(read),
        empty_pair_ns=pair_ns,
        empty_kernel_ns=stats.median([float(w.claimed_ns) for w in empty]) - pair_ns,
        flush_ns=stats.median([float(w.flush_ns) for w in (*pair, *empty, *spin, *read)]),
    )


def published(
    device: CudaDevice, session: Session, bodies: Sequence[str], size: int, windows: int
) -> dict[str, float]:
    """Published time of each body in ns, audited as a submission's would be.

    Raises DeviceError when the audit refuses one.
    """
    found = {}
    taken = windows_of(device, session, bodies, size, windows)
    for body, singles in zip(bodies, taken, strict=True):
        audited = device.audit(0, singles, (), 1)
        if isinstance(audited, Failed):
            raise DeviceError(f"{device.name}: {body}: {audited.message}")
        found[body] = stats.median(audited.estimate.samples_ns)
    return found


def clock_hz(device: CudaDevice, session: Session) -> float:
    """SM clock in Hz while busy: the difference of two long spins of known cycles."""
    few, many = 2_000_000, 12_000_000
    taken = windows_of(device, session, (f"spin:{few}", f"spin:{many}"), 4096, 8)
    short_ns, long_ns = (stats.median([float(w.claimed_ns) for w in ws]) for ws in taken)
    return (many - few) / ((long_ns - short_ns) / 1e9)


def cupti_ns(device: CudaDevice, session: Session, body: str, size: int) -> float | None:
    """CUPTI's median duration of a body, the L2 flushed before each call; None if it saw none."""
    with _exchange(device, session, size) as (exchange, prepared):
        seen = device.observe(session, exchange, [prepared], repeats=20, trace="", body=body)
    times = [] if isinstance(seen, Failed) else [float(a.duration_ns) for a in seen.activities]
    return stats.median(times[2:]) if len(times) > 2 else None


def windows_of(
    device: CudaDevice, session: Session, bodies: Sequence[str], size: int, windows: int
) -> list[list[Window]]:
    """So many windows of each body over one buffer of `size` bytes.  Raises DeviceError."""
    found = []
    with _exchange(device, session, size) as (exchange, prepared):
        for body in bodies:
            taken = []
            for _ in range(windows + WARM_WINDOWS):
                window = device.window(
                    session, exchange, [prepared], timeout_ns=TIMEOUT_NS, timed=False, body=body
                )
                if isinstance(window, Failed):
                    raise DeviceError(f"{device.name}: calibration failed: {window.message}")
                taken.append(window)
            found.append(taken[WARM_WINDOWS:])
    return found


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
