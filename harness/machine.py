"""What this machine is: versions of everything that can move a time, and where it keeps things."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import stat
import tempfile
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


def distributions() -> tuple[tuple[str, str], ...]:
    """Name and version of every installed distribution, sorted; 0.1 s for some sixty."""
    found = ((d.metadata["Name"], d.version) for d in importlib.metadata.distributions())
    return tuple(sorted({(str(name), str(version)) for name, version in found}))


def cache_folder() -> Path:
    """Where what can be made again is kept between runs: below XDG_CACHE_HOME, or ~/.cache.

    Without a home, as a service or a container may be, below the temporary folder.  Where nothing
    can be kept, it is a path that cannot be made: OSError, as in any folder that is read-only.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "kernel-harness"
    try:
        return Path.home() / ".cache" / "kernel-harness"
    except RuntimeError:
        return _private_folder() or Path(os.devnull) / "kernel-harness"


def _private_folder() -> Path | None:
    """A folder in the temporary one that is ours alone: anybody may put a name there first."""
    try:
        folder = Path(tempfile.gettempdir()) / f"kernel-harness-{os.getuid()}"
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return folder if private and found.st_uid == os.getuid() else None
