"""What one GPU is and can do, found by asking the driver and by trying: for `harness doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from harness.devices import nvml
from harness.errors import DeviceError

#: Major compute capabilities with FP4 matrix units (Blackwell; PTX ISA 8.7).
_FP4_MAJORS = (10, 12)


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about a GPU; `judgement` is whether it is well (None: neither) and the remedy."""

    name: str
    value: str
    judgement: tuple[bool | None, str] = (None, "")


def survey(index: int) -> Iterator[Fact]:
    """The facts of `cuda:index`.  Makes a CUDA context, compiles a kernel and reads some GiB."""
    properties = torch.cuda.get_device_properties(index)
    major, minor = properties.major, properties.minor
    memory = properties.total_memory / 2**30
    yield Fact("name", f"{properties.name}, {memory:.0f} GiB, compute {major}.{minor}", (True, ""))
    fp4 = "none: the exact reference stands in, torch._scaled_mm is emulated (never ranked)"
    yield Fact("FP4 units", "torch._scaled_mm" if major in _FP4_MAJORS else fp4)
    yield from _driver(index)
    yield from _exchange(index)


def _driver(index: int) -> Iterator[Fact]:
    try:
        gpu = nvml.Gpu.open(index)
    except DeviceError as error:
        yield Fact("driver", str(error), (False, "see nvidia-smi"))
        return
    yield Fact("driver", ", ".join(f"{name} {value}" for name, value in gpu.facts()))
    now = gpu.clocks()
    heat = f"{now.temperature_c} C" if now.temperature_c is not None else "temperature unknown"
    held = f", held back: {', '.join(now.throttle)}" if now.throttle else ""
    steady = (False, "let it cool, or raise its power limit") if now.throttle else (True, "")
    yield Fact("clocks", f"{now.sm_mhz} MHz, memory {now.memory_mhz} MHz, {heat}{held}", steady)
    for trouble in (*gpu.shares(), *gpu.other_processes()):
        what, _, remedy = trouble.partition(": ")
        yield Fact("shared", what, (False, remedy))


def _exchange(index: int) -> Iterator[Fact]:
    """How judge and worker share memory here, and the bandwidth that times are held against."""
    try:
        from harness.devices import bodies, cuda_host, floor
    except ImportError:
        remedy = "pip install cuda-bindings, of the CUDA version of torch"
        yield Fact("exchange", "cuda-bindings is not installed", (False, remedy))
        return
    if cuda_host.exportable(index):
        yield Fact("exchange", "device memory by descriptor", (True, ""))
    else:
        remedy = "rank on a system that exports device memory (not WSL2)"
        yield Fact("exchange", "through host memory, never ranked", (False, remedy))
    torch.cuda.set_device(index)
    try:
        version = nvml.Gpu.open(index).driver_version()
        bandwidth = floor.Floor(bodies.Bodies(index), index, version).bandwidth()
    except (RuntimeError, DeviceError) as error:
        yield Fact("read bandwidth", str(error), (False, "see nvidia-smi"))
        return
    yield Fact("read bandwidth", f"{bandwidth / 1e12:.3f} TB/s measured", (True, ""))
