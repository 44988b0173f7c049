"""The judge's side of the device that a job runs on."""

from __future__ import annotations

import torch

from harness.devices import present
from harness.devices.cpu import CpuDevice
from harness.errors import DeviceError
from harness.model import Budget
from harness.task import TaskModules
from harness.timing import CPU_BUDGET, CUDA_BUDGET
from harness.window import Device


def device(name: str) -> tuple[Device, Budget]:
    """Open `cpu` or `cuda:N` and say how long to sample there.  Raises DeviceError."""
    if name == "cpu":
        return CpuDevice(), CPU_BUDGET
    if not torch.cuda.is_available():
        raise DeviceError(f"{name}: the driver sees it and torch does not; see `harness doctor`")
    from harness.devices import cuda_host
    from harness.devices.cuda import CudaDevice

    index = present.index_of(name)
    if not cuda_host.exportable(index):
        return cuda_host.HostCudaDevice(index), CUDA_BUDGET
    return CudaDevice(index), CUDA_BUDGET


def needs_emulation(modules: TaskModules, device_name: str) -> bool:
    """Whether the task's reference needs matrix units that this device lacks."""
    native = modules.supports_scaled_mm
    return native is not None and not native(torch.device(device_name))
