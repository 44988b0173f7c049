"""What this machine is: versions of everything that can move a time, and where it keeps things."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

import harness

_PACKAGES = ("torch", "triton", "numpy", "nvidia-cutlass-dsl", "cuda-bindings")


def versions() -> tuple[tuple[str, str], ...]:
    """Name and version of the interpreter, the kernel and the packages that are installed."""
    found = [
        ("harness", harness.__version__),
        ("python", platform.python_version()),
        ("system", platform.platform()),
    ]
    for name in _PACKAGES:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(found)


def cache_folder() -> Path:
    """Where what can be made again is kept between runs: below XDG_CACHE_HOME, or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kernel-harness"
