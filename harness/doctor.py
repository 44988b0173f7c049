"""What this machine can do, found by trying it: findings for `harness doctor`.  Changes nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness import isolation, stats
from harness.environment import cuda_home, worker_environment
from harness.errors import HarnessError
from harness.isolation_probe import Claim
from harness.store import MissingStore, open_store

#: Packages that submissions may be written with, and how to get them.
_TOOLS = (
    ("triton", "pip install triton"),
    ("nvidia-cutlass-dsl", "pip install nvidia-cutlass-dsl"),
)
_CLOCK_READS = 10_000
_SPINS = 200
_SPIN_NS = 100_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about this machine.  `ok` is None for a fact that is neither good nor bad."""

    area: str
    name: str
    value: str
    ok: bool | None = None
    remedy: str = ""  # what to do where `ok` is False


def examine(store_url: str) -> tuple[Finding, ...]:
    """Every finding.  Takes seconds: it loads torch, starts workers and, on a GPU, reads memory."""
    return (
        *_system(),
        *_devices(),
        *_compilers(),
        *_isolation(),
        *_store(store_url),
        *_clock(),
    )


def _system() -> Iterator[Finding]:
    yield Finding("system", "system", platform.platform())
    yield Finding("system", "python", platform.python_version())
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    usable = len(os.sched_getaffinity(0))
    yield Finding("system", "processors", f"{usable} usable, {pages * size / 2**30:.0f} GiB memory")


def _devices() -> Iterator[Finding]:
    import torch

    from harness.devices.cpu import describe

    yield Finding("device", "torch", torch.__version__)
    yield Finding("device", "cpu", describe().name, True)
    if torch.cuda.is_available():
        from harness.devices import survey

        for index in range(torch.cuda.device_count()):
            for fact in survey.survey(index):
                yield Finding("device", f"cuda:{index} {fact.name}", fact.value, *fact.judgement)
        return
    why, remedy = _without_cuda(torch.version.cuda)
    yield Finding("device", "cuda", why, False, remedy)


def _without_cuda(built_for: str | None) -> tuple[str, str]:
    """Why torch sees no GPU, and what to do about it."""
    driver = Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()
    elsewhere = "check here on the CPU with --device cpu, and time on a machine with a GPU"
    if not driver:
        return "no NVIDIA driver on this machine", elsewhere
    if built_for is None:
        return "torch is a build without CUDA", "install a CUDA build of torch: pip install torch"
    if os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        return "CUDA_VISIBLE_DEVICES hides every GPU", "unset CUDA_VISIBLE_DEVICES"
    return (
        f"torch for CUDA {built_for} does not get on with this driver",
        "compare `nvidia-smi` with torch's CUDA version; update the driver or choose another torch",
    )


def _compilers() -> Iterator[Finding]:
    """Looked for where a submission's worker looks, not on the caller's own PATH."""
    path = dict(worker_environment(Path("/nonexistent"), cuda=True))["PATH"]
    home = cuda_home()
    nvcc = str(home / "bin/nvcc") if home is not None else shutil.which("nvcc", path=path)
    yield _tool("nvcc", nvcc, "install the CUDA toolkit in /usr/local/cuda; CUDA C++ needs it")
    compiler = shutil.which("g++", path=path)
    yield _tool("g++", compiler, "apt-get install g++; CUDA C++ and torch.compile need it")
    ninja = shutil.which("ninja", path=path)
    yield _tool("ninja", ninja, "pip install ninja, beside torch; torch's load_inline needs it")
    for name, remedy in _TOOLS:
        try:
            yield Finding("compiler", name, importlib.metadata.version(name), True)
        except importlib.metadata.PackageNotFoundError:
            yield Finding("compiler", name, "not installed", False, remedy)


def _tool(name: str, found: str | None, remedy: str) -> Finding:
    if found is None:
        return Finding("compiler", name, "not found", False, remedy)
    return Finding("compiler", name, found, True)


def _isolation() -> Iterator[Finding]:
    for report in isolation.levels():
        if report.available:
            yield Finding("isolation", report.level.value, _proved(report.proof), True)
        else:
            yield Finding("isolation", report.level.value, report.reason, False, report.remedy)


def _proved(proof: isolation.Proof | None) -> str:
    """How many of all promises held when a worker of that level tried to break them."""
    if proof is None:
        return "not tried"
    held = sum(ok for _, ok in proof.claims)
    worker = "; its worker is root" if proof.root else ""
    return f"{held} of {len(Claim)} promises held when tried from inside{worker}"


def _store(url: str) -> Iterator[Finding]:
    shown = url.removeprefix("sqlite:///")
    try:
        with open_store(url, create=False) as store:
            count = len(store.runs())
            store.prove_writable()
            yield Finding("store", "results", f"{store.where}: {count} runs", True)
    except MissingStore:
        yield _no_store_yet(shown)
    except HarnessError as error:
        yield Finding("store", "results", str(error), False, "or name another one with --db")


def _no_store_yet(shown: str) -> Finding:
    folder = Path(shown).parent
    while not folder.exists():
        folder = folder.parent
    if os.access(folder, os.W_OK):
        return Finding("store", "results", f"{shown}: the first run makes it", True)
    remedy = "choose a database in a folder of yours with --db"
    return Finding("store", "results", f"{shown}: {folder} cannot be written", False, remedy)


def _clock() -> Iterator[Finding]:
    """How finely the host's clock reads, and how steadily this machine does the same work twice."""
    reads = [time.monotonic_ns() for _ in range(_CLOCK_READS)]
    steps = [b - a for a, b in zip(reads, reads[1:], strict=False) if b > a]
    yield Finding("clock", "step", f"{min(steps)} ns between two readings at best", True)
    counts = [_spin() for _ in range(_SPINS)]
    middle = stats.median(counts)
    spread = (stats.percentile(counts, 0.9) - stats.percentile(counts, 0.1)) / middle
    value = f"{spread:.1%} from p10 to p90 over {_SPINS} spins of {_SPIN_NS // 1000} us"
    quiet = spread < 0.1
    yield Finding(
        "clock", "steady", value, quiet, "" if quiet else "end other programs before timing"
    )


def _spin() -> float:
    """How often the clock can be read in a fixed time: the same work each time."""
    until = time.monotonic_ns() + _SPIN_NS
    count = 0
    while time.monotonic_ns() < until:
        count += 1
    return float(count)
