"""The bubblewrap command line of a sandbox: which namespaces, which files, in which order.

Pure but for asking what kind of file a path is; sandbox.py runs the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_TMP_BYTES = 1 << 30  # /tmp and /dev/shm each: memory that no other limit sees
_MASK_BYTES = 1 << 12  # an empty folder over a hidden path
_NAMESPACES = (
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-uts",
    "--unshare-cgroup-try",
)
#: What confine.py needs to become another user; it then drops them.
_ROOT_CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")


def command(
    *,
    program: str,
    readable: Sequence[Path],
    hidden: Sequence[Path],
    devices: Sequence[Path],
    scratch: Path,
    privileged: bool,
) -> list[str]:
    """Arguments up to and with the `--`; all of the host that is not named here is absent.

    `privileged` is for root with CAP_SYS_ADMIN: the mounts are made without a user namespace, so
    that files under a home of mode 0700 stay readable, and the program inside becomes another
    user.  Otherwise a user namespace keeps the caller's user and gives it no rights.
    """
    args = [program, *_NAMESPACES, "--hostname", "worker", "--die-with-parent", "--new-session"]
    if privileged:
        args += ["--cap-drop", "ALL"]
        for capability in _ROOT_CAPABILITIES:
            args += ["--cap-add", capability]
    else:
        args.append("--unshare-user")
    args += ["--proc", "/proc", "--dev", "/dev"]
    args += ["--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs", "/dev/shm"]
    made = {Path("/"), Path("/tmp"), Path("/dev"), Path("/proc")}
    for device in devices:
        args += _parents(device, made)
        args += ["--dev-bind", str(device), str(device)]
    args += ["--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs", "/tmp"]
    args += _mounts(made, readable=readable, hidden=hidden, scratch=scratch)
    if devices:
        args += ["--ro-bind", "/sys", "/sys"]  # cuInit returns 304 without it
    # Otherwise a user that owns the root could fill it: it is memory without a limit.
    args += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--"]
    return args


def _parents(path: Path, made: set[Path]) -> list[str]:
    """The folders above `path` that are not there yet; bubblewrap's own are for root only."""
    args: list[str] = []
    for parent in reversed(path.parents):
        if parent not in made:
            args += ["--perms", "0755", "--dir", str(parent)]
            made.add(parent)
    return args


def _mounts(
    made: set[Path], *, readable: Sequence[Path], hidden: Sequence[Path], scratch: Path
) -> list[str]:
    """Outer paths first, so that a folder inside a hidden or a read-only one comes on top."""
    args: list[str] = []
    kinds = dict.fromkeys(readable, "read")
    kinds |= dict.fromkeys(_masks(readable, hidden), "hide")
    kinds[scratch] = "write"
    for path, kind in sorted(kinds.items(), key=lambda item: (len(item[0].parts), item[0])):
        above = next((kinds[parent] for parent in path.parents if parent in kinds), None)
        if kind == above:
            continue
        args += _parents(path, made)
        if kind == "write":
            args += ["--bind", str(path), str(path)]
        elif kind == "hide":
            args += ["--perms", "0755", "--size", str(_MASK_BYTES), "--tmpfs", str(path)]
        elif path.is_symlink() and len(path.parts) == 2:  # /lib and the like, into /usr
            args += ["--symlink", str(path.readlink()), str(path)]
        else:
            args += ["--ro-bind", str(path), str(path)]
        made.add(path)
    return args


def _masks(readable: Sequence[Path], hidden: Sequence[Path]) -> list[Path]:
    """Where hidden paths would show: inside a readable folder, under each of its names."""
    found = []
    for path in (entry.resolve() for entry in hidden):
        for folder in readable:
            if path.is_relative_to(folder.resolve()):
                found.append(folder / path.relative_to(folder.resolve()))
    return found
