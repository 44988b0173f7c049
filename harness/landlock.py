"""Landlock by its three system calls: what a worker may open when there are no namespaces.

Used by confine.py, and by sandbox.py to ask for the version.  Numbers from linux/landlock.h; the
system calls have the same numbers on every machine.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Sequence

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_VERSION, _RULE_PATH_BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_VERSION_1 = (1 << 13) - 1  # rights known to the first version
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1 << 0, 1 << 1

READ = _EXECUTE | _READ_FILE | _READ_DIR
DEVICE = _READ_FILE | _WRITE_FILE | _READ_DIR | _TRUNCATE | _IOCTL_DEVICE
#: /proc for CUDA, which names its threads there: open for writing, nothing made or removed.
PROC_WRITE = _EXECUTE | _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE


def version() -> int:
    """The kernel's Landlock version, 0 without it."""
    found = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_VERSION)
    return max(0, int(found))


def scopes_signals(abi: int) -> bool:
    """Whether this version keeps signals and abstract sockets inside."""
    return abi >= 6


def restrict(
    *,
    read: Sequence[str],
    write: Sequence[str],
    devices: Sequence[str],
    proc: int = READ,
) -> None:
    """Leave this thread and its descendants only these paths; needs no-new-privileges.

    `read` may be read and executed, `write` is theirs but for making device nodes, `devices` may
    be read, written and controlled.  Paths that do not exist are left out: one missing path must
    not cost all the others their protection.  Raises OSError.
    """
    abi = version()
    handled = _VERSION_1
    handled |= _REFER if abi >= 2 else 0
    handled |= _TRUNCATE if abi >= 3 else 0
    handled |= _IOCTL_DEVICE if abi >= 5 else 0
    network = _BIND_TCP | _CONNECT_TCP if abi >= 4 else 0
    scoped = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if scopes_signals(abi) else 0
    attributes = struct.pack("<QQQ", handled, network, scoped)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _call(_CREATE_RULESET, ctypes.c_char_p(attributes), ctypes.c_size_t(size), 0)
    whole = handled & ~(_MAKE_CHAR | _MAKE_BLOCK)
    rules = [(path, READ) for path in read]
    rules += [(path, whole) for path in write]
    rules += [(path, DEVICE) for path in devices]
    rules.append(("/proc", proc))
    for path, rights in rules:
        _allow(ruleset, path, rights & handled)
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _FILE_RIGHTS
        rule = struct.pack("<Qi", rights, fd)
        _call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.c_char_p(rule), 0)
    finally:
        os.close(fd)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    found = int(_libc().syscall(ctypes.c_long(number), *arguments))
    if found < 0:
        raise OSError(ctypes.get_errno(), f"Landlock call {number} refused")
    return found
