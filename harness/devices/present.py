"""Which device a job means, and what a worker needs for it; told without loading torch.

So a worker can be started, and load torch, while the judge is still loading its own.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from harness.devices import nvml
from harness.errors import UsageError

_NAME = re.compile(r"(auto|cpu|cuda(:\d{1,3})?)")


def resolve(name: str) -> str:
    """`cpu` or `cuda:N` for `auto`, `cpu`, `cuda` or `cuda:N`.  Raises UsageError."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"--device {name}: expected auto, cpu, cuda or cuda:N")
    count = nvml.count() if name != "cpu" and torch_has_cuda() else 0
    if name == "cpu" or (name == "auto" and not count):
        return "cpu"
    index = int(name.partition(":")[2] or 0)
    if index < count:
        return f"cuda:{index}"
    found = f"there {'is' if count == 1 else 'are'} {count} usable here"
    if not torch_has_cuda():
        found = "this torch was built without CUDA"
    raise UsageError(
        f"--device {name}: {found}; choose another one, or --device cpu to check without a GPU"
    )


def torch_has_cuda() -> bool:
    """Whether the installed torch is a CUDA build, by its version file."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return False
    return re.search(r"^cuda\b[^=]*=\s*['\"]", text, re.MULTILINE) is not None


def device_nodes(device: str) -> tuple[Path, ...]:
    """The device files that a worker needs: the driver's, and those of the one GPU."""
    if device == "cpu":
        return ()
    minor = nvml.Gpu.open(index_of(device)).minor()
    names = ("nvidiactl", f"nvidia{minor}", "nvidia-uvm", "nvidia-uvm-tools")
    return tuple(path for path in (Path("/dev") / name for name in names) if path.exists())


def visible(device: str) -> str:
    """CUDA_VISIBLE_DEVICES of a worker: the one GPU, by its UUID."""
    return "" if device == "cpu" else nvml.Gpu.open(index_of(device)).uuid()


def arch_list(device: str) -> str | None:
    """TORCH_CUDA_ARCH_LIST for this device, so that nothing is built for another one."""
    if device == "cpu":
        return None
    major, minor = nvml.Gpu.open(index_of(device)).capability()
    return f"{major}.{minor}{'a' if major >= 9 else ''}"


def index_of(device: str) -> int:
    """N of `cuda:N`."""
    return int(device.partition(":")[2])
