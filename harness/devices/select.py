"""Which device a job runs on, and what only that choice decides."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from harness.devices.cpu import CpuDevice
from harness.errors import UsageError
from harness.model import Budget
from harness.task import TaskModules
from harness.timing import CPU_BUDGET, CUDA_BUDGET

if TYPE_CHECKING:
    from harness.window import Device

_NAME = re.compile(r"(auto|cpu|cuda(:\d+)?)")


def device(name: str) -> tuple[Device, Budget]:
    """Resolve `auto`, `cpu` or `cuda[:N]`.  Raises UsageError when there is no such device."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"--device {name}: expected auto, cpu, cuda or cuda:N")
    available = torch.cuda.is_available()
    if name == "auto":
        name = "cuda:0" if available else "cpu"
    if name == "cpu":
        return CpuDevice(), CPU_BUDGET
    index = int(name.partition(":")[2] or 0)
    count = torch.cuda.device_count() if available else 0
    if index >= count:
        found = f"torch sees {count} CUDA device{'' if count == 1 else 's'}"
        raise UsageError(
            f"--device {name}: {found}; choose another one, or --device cpu to check without a GPU"
        )
    from harness.devices import cuda_host
    from harness.devices.cuda import CudaDevice

    if not cuda_host.exportable(index):
        return cuda_host.HostCudaDevice(index), CUDA_BUDGET
    return CudaDevice(index), CUDA_BUDGET


def needs_emulation(modules: TaskModules, device_name: str) -> bool:
    """Whether the task's reference needs matrix units that this device lacks."""
    native = modules.supports_scaled_mm
    return native is not None and not native(torch.device(device_name))


def device_nodes(device_name: str) -> tuple[Path, ...]:
    """The device files that a worker needs: the driver's, and those of the one GPU."""
    if device_name == "cpu":
        return ()
    from harness.devices.cuda import device_nodes as cuda_nodes

    return cuda_nodes(int(device_name.partition(":")[2]))


def arch_list(device_name: str) -> str | None:
    """TORCH_CUDA_ARCH_LIST for this device, so that nothing is built for another one."""
    if device_name == "cpu":
        return None
    major, minor = torch.cuda.get_device_capability(torch.device(device_name))
    suffix = "a" if major >= 9 else ""
    return f"{major}.{minor}{suffix}"
