"""What the driver says of a GPU: clocks, heat, throttling, and who else uses it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from harness.errors import DeviceError
from harness.model import Clocks

#: Reasons that slow a clock down; idle and an application's own setting are none.
_THROTTLE = {
    "power cap": pynvml.nvmlClocksThrottleReasonSwPowerCap,
    "hardware slowdown": pynvml.nvmlClocksThrottleReasonHwSlowdown,
    "thermal (software)": pynvml.nvmlClocksThrottleReasonSwThermalSlowdown,
    "thermal (hardware)": pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
    "power brake": pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
}


def count() -> int:
    """How many GPUs torch would see: the driver's, as far as CUDA_VISIBLE_DEVICES shows them."""
    try:
        pynvml.nvmlInit()
        there = int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0
    chosen = _visible()
    return there if chosen is None else min(there, len(chosen))


def _visible() -> list[str] | None:
    """The entries of CUDA_VISIBLE_DEVICES, None where it is not set."""
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return None
    return [entry.strip() for entry in text.split(",") if entry.strip() not in ("", "-1")]


class Gpu:
    """One GPU through NVML, numbered as CUDA numbers it with CUDA_DEVICE_ORDER=PCI_BUS_ID."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._throttled: set[str] = set()

    @classmethod
    def open(cls, index: int) -> Gpu:
        """The GPU that torch calls cuda:`index`.  Raises DeviceError."""
        try:
            pynvml.nvmlInit()
            chosen = _visible()
            entry = str(index) if chosen is None else chosen[index]
            if entry.isdigit():
                return cls(pynvml.nvmlDeviceGetHandleByIndex(int(entry)))
            return cls(pynvml.nvmlDeviceGetHandleByUUID(entry))
        except IndexError:
            raise DeviceError(f"cuda:{index}: CUDA_VISIBLE_DEVICES hides it") from None
        except pynvml.NVMLError as error:
            raise DeviceError(
                f"cuda:{index}: the NVIDIA driver does not answer ({error}); see nvidia-smi"
            ) from None

    def minor(self) -> int:
        """N of /dev/nvidiaN."""
        return int(pynvml.nvmlDeviceGetMinorNumber(self._handle))

    def capability(self) -> tuple[int, int]:
        """Compute capability, major and minor."""
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(self._handle)
        return int(major), int(minor)

    def driver_version(self) -> str:
        return str(pynvml.nvmlSystemGetDriverVersion())

    def uuid(self) -> str:
        return str(pynvml.nvmlDeviceGetUUID(self._handle))

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Name and value of what is worth keeping beside a time."""
        found = [("driver", self.driver_version()), ("uuid", self.uuid())]
        asked: list[tuple[str, Callable[[], Any]]] = [
            ("vbios", lambda: pynvml.nvmlDeviceGetVbiosVersion(self._handle)),
            ("power_limit_w", lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(self._handle) / 1e3),
            ("ecc", lambda: bool(pynvml.nvmlDeviceGetEccMode(self._handle)[0])),
            ("persistence", lambda: bool(pynvml.nvmlDeviceGetPersistenceMode(self._handle))),
            ("max_sm_mhz", lambda: pynvml.nvmlDeviceGetMaxClockInfo(self._handle, 1)),
            ("mig", lambda: bool(pynvml.nvmlDeviceGetMigMode(self._handle)[0])),
        ]
        for name, ask in asked:
            with contextlib.suppress(pynvml.NVMLError):
                found.append((name, str(ask())))
        return tuple(found)

    def clocks(self) -> Clocks:
        """Clocks, power, temperature and why the clock is held back, now."""
        reasons = _ask(lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))
        throttle = tuple(n for n, bit in _THROTTLE.items() if reasons is not None and reasons & bit)
        self._throttled.update(throttle)
        power = _ask(lambda: pynvml.nvmlDeviceGetPowerUsage(self._handle))
        return Clocks(
            sm_mhz=_ask(lambda: pynvml.nvmlDeviceGetClockInfo(self._handle, 1)),
            memory_mhz=_ask(lambda: pynvml.nvmlDeviceGetClockInfo(self._handle, 2)),
            power_w=None if power is None else power / 1e3,
            temperature_c=_ask(lambda: pynvml.nvmlDeviceGetTemperature(self._handle, 0)),
            throttle=throttle,
        )

    def throttled(self) -> bool:
        """Whether any `clocks` so far saw the clock held back."""
        return bool(self._throttled)

    def other_processes(self) -> tuple[str, ...]:
        """One line for each process that computes here; ask before making a context of our own."""
        return tuple(map(_stranger, self._computing() - {os.getpid()}))

    def stranger(self, known: set[int]) -> str | None:
        """One process that computes or draws here and is neither this one nor of `known`."""
        drawing = self._pids(pynvml.nvmlDeviceGetGraphicsRunningProcesses)
        strange = (self._computing() | drawing) - known - {os.getpid()}
        return _stranger(min(strange)) if strange else None

    def _computing(self) -> set[int]:
        return self._pids(pynvml.nvmlDeviceGetComputeRunningProcesses)

    def _pids(self, listing: Callable[[Any], Any]) -> set[int]:
        return {int(process.pid) for process in _ask(lambda: listing(self._handle)) or ()}

    def lasting_processes(self, patience_ns: int) -> tuple[str, ...]:
        """`other_processes` that stay for `patience_ns`; a context takes time to go."""
        until_ns = time.monotonic_ns() + patience_ns
        found = self.other_processes()
        while found and time.monotonic_ns() < until_ns:
            time.sleep(0.02)
            found = self.other_processes()
        return found

    def shares(self) -> tuple[str, ...]:
        """Modes in which contexts are not time-sliced as the clock expects, each with a remedy."""
        if not _mps_runs():
            return ()
        return (
            "MPS is running, which lets a worker run beside the judge unseen: "
            "echo quit | nvidia-cuda-mps-control",
        )

    def exclusive(self) -> str | None:
        """Why judge and worker cannot both use this GPU, with the remedy, or None."""
        mode = _ask(lambda: pynvml.nvmlDeviceGetComputeMode(self._handle))
        if mode != pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
            return None
        return (
            "is in EXCLUSIVE_PROCESS mode, where judge and worker cannot both use it; "
            "run `nvidia-smi -c DEFAULT` first"
        )


def _stranger(pid: int) -> str:
    return f"process {pid} also uses this GPU: end it, or wait for it, before ranking"


def _ask(question: Callable[[], Any]) -> Any:
    """The driver's answer, or None where it has none."""
    try:
        return question()
    except pynvml.NVMLError:
        return None


def _mps_runs() -> bool:
    """Whether an MPS control daemon is up: its process, or its pipe where we would look for it."""
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    if (folder / "control").exists():
        return True
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if comm.read_text(encoding="utf-8", errors="replace").startswith("nvidia-cuda-mps"):
                return True
    return False
