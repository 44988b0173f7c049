"""As whom a worker runs: another user when we are root, ourselves otherwise.

Used by sandbox.py.  Another user is what closes signals, /proc and the GPU driver's sharing rules
(ATTACKS 2.6), and the only thing that makes RLIMIT_NPROC count the worker alone.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: Above the users that distributions and containers hand out (systemd's table ends at 0x6FFFFFFF),
#: so that no other process has the worker's user and its process limit counts it alone.
_FIRST_UID = 0x7A000000
_NOBODY = 65534
_CAP_SYS_ADMIN = 21


@dataclass(frozen=True, slots=True)
class Identity:
    """As whom a worker runs."""

    uid: int | None  # the user and group it becomes, None for the caller's own
    privileged: bool  # we are root that may mount: no user namespace needed
    root: bool  # it stays the machine's root


def of_worker(*, sandboxed: bool, needs: Sequence[Path]) -> Identity:
    """Root's worker becomes another user wherever that user can read all that it needs."""
    if os.geteuid() != 0:
        return Identity(uid=None, privileged=False, root=False)
    uid = _unused_uid()
    if sandboxed and _has_capability(_CAP_SYS_ADMIN):
        return Identity(uid=uid, privileged=True, root=uid is None)
    if uid is not None and _readable_by(uid, needs):
        return Identity(uid=uid, privileged=False, root=False)
    return Identity(uid=None, privileged=False, root=_maps_identically())


def _unused_uid() -> int | None:
    """A user of this process's workers alone, else nobody; None where neither is mapped."""
    for uid in (_FIRST_UID + os.getpid(), _NOBODY):
        if all(_is_mapped(uid, Path(f"/proc/self/{kind}_map")) for kind in ("uid", "gid")):
            return uid
    return None


def _is_mapped(number: int, table: Path) -> bool:
    rows = (tuple(map(int, line.split())) for line in table.read_text().splitlines())
    return any(first <= number < first + count for first, _, count in rows)


def _maps_identically() -> bool:
    """Whether root here is the machine's root, not a container's that is somebody else outside."""
    return Path("/proc/self/uid_map").read_text().split()[:2] == ["0", "0"]


def _has_capability(number: int) -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def _readable_by(uid: int, paths: Sequence[Path]) -> bool:
    """Whether another user reaches the interpreter and all of `paths`: asked as that user."""
    code = "import os, sys; sys.exit(not all(os.access(p, os.R_OK) for p in sys.argv[1:]))"
    try:
        answer = subprocess.run(
            [sys.executable, "-I", "-S", "-B", "-c", code, *map(str, paths)],
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=uid,
            group=uid,
            extra_groups=[],
            check=False,
        )
    except OSError:  # the interpreter itself is out of that user's reach
        return False
    return answer.returncode == 0


def counts_per_namespace() -> bool:
    """Since Linux 5.14 RLIMIT_NPROC counts within a user namespace, before per user."""
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int("".join(c for c in minor if c.isdigit()))) >= (5, 14)


def threads_of_this_user() -> int:
    """What RLIMIT_NPROC already counts before the worker's first process."""
    user = str(os.getuid())
    total = 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):
            text = Path("/proc", name, "status").read_text(errors="replace")
            fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
            if fields["Uid"].split()[0] == user:
                total += int(fields["Threads"])
    return total
