"""Metrology: kernels of known length and a read of known size, read through the real window."""

from __future__ import annotations

from collections.abc import Sequence

from harness import stats
from harness.launch import Launcher
from harness.model import Failed, Task
from harness.progress import Emit, Progress
from harness.selftest_values import SelfTestLine, SelfTestReport
from harness.window import Device

#: Lengths of the spin kernels, in us.
LENGTHS_US = (1, 2, 5, 10, 20, 50, 200, 1000)
#: How far a published time may be off: the larger of 0.15 us and 1%.
ALLOWED_NS, ALLOWED_SHARE = 150.0, 0.01
#: A cold read against CUPTI's duration of the same kernel.
READ_BYTES, READ_SHARE = 66_083_840, 0.02
WINDOWS = 40


def metrology(task: Task, device: Device, launcher: Launcher, emit: Emit) -> SelfTestReport:
    """Time known bodies in a worker that has no submission.  DeviceError where that fails."""
    if device.name == "cpu":
        return _cpu(device, launcher)
    from harness.devices import known
    from harness.devices.cuda import CudaDevice

    if not isinstance(device, CudaDevice):
        return SelfTestReport(device.describe(), launcher.level.value, (), ())
    emit(Progress("starting a worker"))
    session = launcher.spawn()
    try:
        launcher.attend(session)
        device.calibrate(session)
        clock_hz = known.clock_hz(device, session)
        emit(Progress("timing kernels of known length"))
        bodies = ["null", "spin:0", *(f"spin:{round(us * clock_hz / 1e6)}" for us in LENGTHS_US)]
        read = f"read:{READ_BYTES}"
        times, by_cupti = known.published(
            device, session, [*bodies, read], READ_BYTES, WINDOWS, by_cupti=(read, "spin:0")
        )
    finally:
        session.close()
    return SelfTestReport(
        device.describe(),
        launcher.level.value,
        (
            ("sm clock in GHz", clock_hz / 1e9),
            ("empty event pair, taken off every time, in ns", device.empty_pair_ns),
            ("empty kernel, stated and not taken off, in ns", times["spin:0"]),
        ),
        _lines(times, bodies[2:], read, by_cupti[read], by_cupti["spin:0"]),
    )


def _lines(
    times: dict[str, float],
    spins: Sequence[str],
    read: str,
    cupti_ns: float | None,
    cupti_empty_ns: float | None,
) -> tuple[SelfTestLine, ...]:
    """Published times against what is known, the constant of an empty kernel taken off.

    CUPTI's duration runs from a kernel's first to its last instruction; the launch around it is
    what an empty kernel's published time has more than its own duration by CUPTI.
    """
    empty_ns = times["spin:0"]
    lines = [SelfTestLine("empty call", 0.0, times["null"], ALLOWED_NS, times["null"] < 150)]
    for us, body in zip(LENGTHS_US, spins, strict=True):
        known, found = us * 1e3, times[body] - empty_ns
        allowed = max(ALLOWED_NS, ALLOWED_SHARE * known)
        lines.append(
            SelfTestLine(f"spin {us} us", known, found, allowed, abs(found - known) <= allowed)
        )
    if cupti_ns is not None and cupti_empty_ns is not None:
        allowed = READ_SHARE * cupti_ns
        found = times[read] - (empty_ns - cupti_empty_ns)
        fits = abs(found - cupti_ns) <= allowed
        lines.append(SelfTestLine("cold read of 66 MB (CUPTI)", cupti_ns, found, allowed, fits))
    else:
        lines.append(SelfTestLine("cold read of 66 MB (CUPTI)", None, times[read], None, ok=False))
    return tuple(lines)


def _cpu(device: Device, launcher: Launcher) -> SelfTestReport:
    """On a CPU the clock is the judge's own; what can be read is the round trip to a worker."""
    import time

    session = launcher.spawn()
    try:
        launcher.attend(session)
        trips = []
        for _ in range(200):
            start_ns = time.monotonic_ns()
            reply = session.order("idle", timeout_ns=10**10)
            if isinstance(reply, Failed):
                return SelfTestReport(device.describe(), launcher.level.value, (), ())
            trips.append(float(reply.arrived_ns - start_ns))
    finally:
        session.close()
    median_ns = stats.median(trips)
    # Ranked CPU times are milliseconds; a round trip of one would be a percent of them.
    line = SelfTestLine("round trip to a worker", None, median_ns, 1e6, median_ns <= 1e6)
    return SelfTestReport(device.describe(), launcher.level.value, (), (line,))
