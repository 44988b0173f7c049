"""What a worker finds around it: the system's files that it may read, and its variables.

Built from nothing for every worker; judge.py puts both into a sandbox.Plan.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import harness

#: Compilers, libraries and the loader's index.  Nothing of /etc that names users or secrets.
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/opt/cuda",
    "/opt/nvidia",
    "/nix/store",
    "/gnu/store",
    "/run/opengl-driver",
    "/sys/devices/system/cpu",  # torch and glibc count processors there
    "/sys/devices/system/node",
)
_CUDA_HOMES = ("/usr/local/cuda", "/opt/cuda")
_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
#: Names of the folders that a package manager installs into, and of the library's built part.
_SITES = ("site-packages", "dist-packages")
_BUILT = ("lib-dynload", "DLLs")
_MAX_JOBS = 16  # nvcc takes up to about 2 GB each; more would meet the memory limit first


def package_directory() -> Path:
    """The folder of this package: all of the project that a worker ever sees."""
    return Path(harness.__file__).resolve().parent


def installed(entries: Iterable[str]) -> list[str]:
    """What of a sys.path is Python's own library or holds installed packages.

    Not the current folder, nor one that PYTHONPATH or `pip install -e` names: a pull request adds
    an opt_einsum.py there, and torch imports it where no other is installed.  A folder within an
    installed package is one of them (nvidia-cutlass-dsl has its modules in such).
    """
    library = os.path.dirname(os.__file__)
    return list(dict.fromkeys(e for e in entries if e == library or _is_installed(e)))


def _is_installed(entry: str) -> bool:
    path = Path(entry)
    return path.name in _BUILT or any(part in _SITES for part in path.parts)


def site_directories() -> tuple[Path, ...]:
    """Where this interpreter's installed packages are, in the order of sys.path."""
    found = map(Path, installed(sys.path))
    return tuple(path for path in found if path.name in _SITES and path.is_dir())


def default_readable() -> tuple[Path, ...]:
    """System, interpreter, installed packages, this package's folder; never the project's root.

    Packages installed in place from elsewhere (`pip install -e`) are not among them.
    """
    paths = [Path(text) for text in _SYSTEM]
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    for prefix in sorted(prefixes):
        paths += [Path(prefix), Path(prefix).resolve()]
    paths += _interpreter_links()
    paths += site_directories()
    paths.append(package_directory())
    kept = (path for path in paths if path.exists() and path != Path("/"))
    return tuple(dict.fromkeys(kept))


def _interpreter_links() -> list[Path]:
    """Each step from sys.executable to the real file; a virtual environment's is a chain."""
    path = Path(sys.executable)
    found = [path]
    while path.is_symlink():
        path = Path(os.path.normpath(path.parent / path.readlink()))
        found.append(path)
    return found


def cuda_home() -> Path | None:
    """The CUDA toolkit in its usual places, None without one."""
    for text in _CUDA_HOMES:
        if (Path(text) / "bin/nvcc").exists():
            return Path(text)
    return None


def worker_environment(
    scratch: Path,
    *,
    cuda: bool,
    arch_list: str | None = None,
    visible: str = "0",
) -> tuple[tuple[str, str], ...]:
    """Every variable of a worker; nothing is inherited (ATTACKS L1 to L3).

    Homes and caches lie in `scratch`, so that two submissions never share a compiled file.
    `arch_list` is TORCH_CUDA_ARCH_LIST; `visible` is CUDA_VISIBLE_DEVICES, best a GPU's UUID.
    """
    home = cuda_home() if cuda else None
    # Not resolved: a virtual environment's own folder has the ninja that torch looks for.
    path = [str(Path(sys.executable).parent), *_PATH]
    if home is not None:
        path.insert(1, str(home / "bin"))
    variables = {
        "PATH": ":".join(path),
        "LANG": "C.UTF-8",
        "USER": "worker",  # torch asks for a name, and the worker's user may have none
        "LOGNAME": "worker",
        "HOME": str(scratch / "home"),
        "TMPDIR": str(scratch / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPYCACHEPREFIX": str(scratch / "cache/python"),
        "MAX_JOBS": str(min(len(os.sched_getaffinity(0)), _MAX_JOBS)),
        # Spinning OpenMP threads collapse where processes share cores (11 s instead of 0.2 s for
        # one reference on 2 shared cores), and would look like work between calls.
        "OMP_WAIT_POLICY": "PASSIVE",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": visible if cuda else "",
    }
    variables |= {name: str(scratch / "cache" / folder) for name, folder in _CACHES}
    if home is not None:
        variables["CUDA_HOME"] = str(home)
    if arch_list is not None:
        variables["TORCH_CUDA_ARCH_LIST"] = arch_list
    return tuple(variables.items())


_CACHES = (
    ("XDG_CACHE_HOME", "xdg"),
    ("TORCH_EXTENSIONS_DIR", "torch_extensions"),
    ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
    ("TRITON_HOME", "triton_home"),
    ("TRITON_CACHE_DIR", "triton"),
    ("CUDA_CACHE_PATH", "cuda"),
    ("CUPY_CACHE_DIR", "cupy"),
    ("CUTE_DSL_CACHE_DIR", "cute_dsl"),
    ("FLASHINFER_WORKSPACE_BASE", "flashinfer"),
    ("MPLCONFIGDIR", "matplotlib"),
)

_BOOT = """\
import importlib.util, sys
sys.path[:] = {path!r}
spec = importlib.util.spec_from_file_location(
    "harness", {directory!r} + "/__init__.py", submodule_search_locations=[{directory!r}])
sys.modules["harness"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
"""


def boot(*lines: str) -> str:
    """Code for `python -c`: this package, then `lines`.

    The package is loaded from its folder, not found on a path: its parent may be the root of a
    checkout, where a stranger's file may be called as a module that somebody would like to have.
    """
    before = _BOOT.format(path=installed(sys.path), directory=str(package_directory()))
    return before + "\n".join(lines)


def worker_argv(module: str, *arguments: str) -> tuple[str, ...]:
    """A command that runs `module` of this package as a program in a worker.

    Loading torch makes a million objects and no garbage: looking for some takes a sixth of the time
    (2.1 s instead of 1.8 s were measured).  worker.main turns the collector on.
    """
    code = boot(
        "import gc, runpy",
        "gc.disable()",
        f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)",
    )
    return (sys.executable, "-I", "-B", "-u", "-c", code, *arguments)
