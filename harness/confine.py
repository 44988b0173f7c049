"""The last trusted code before a worker: gives up rights, then becomes it.

`python -I -S -c "... from harness.confine import main; main()" SPEC` is started by sandbox.py, in a
bubblewrap sandbox or not, and needs the standard library alone.  SPEC is a `Spec` as JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from harness import landlock, seccomp, tree

CHANNEL_FD = 3
READY = b"ready"  # on the status pipe, which then ends: the exec has closed it
_ABOVE_FD = 10  # out of the way of the descriptors that a worker keeps
_LAST_FD = 1 << 20  # fs.nr_open's default

_PR_SET_PDEATHSIG, _PR_GET_DUMPABLE, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 3, 4, 24
_PR_SET_SECUREBITS, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 28, 36, 38
_SECURE_NO_ROOT_LOCKED = 0b1111  # NOROOT and NO_SETUID_FIXUP, each with its lock
_CAPABILITY_VERSION_3 = 0x20080522  # linux/capability.h
_LAST_CAPABILITY = 63  # the mask's width; those that the kernel lacks are refused and skipped
_SWEEP_NS = 3_000_000_000  # for what a worker left behind; sandbox.py allows 5 s in all


@dataclass(frozen=True, slots=True)
class Spec:
    """What to become, and with which rights; paths are strings, for JSON."""

    argv: tuple[str, ...]
    cwd: str
    channel_fd: int
    status_fd: int
    uid: int | None  # the user and group to become, None to stay
    file_bytes: int
    open_files: int
    processes: int
    filtered: bool  # seccomp
    namespaces: bool  # own network, ipc and pid namespaces around it
    supervise: bool  # stay behind as the worker's parent: without a pid namespace
    landlock: bool = False
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    cuda: bool = False
    guard_signals: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Spec:
        values: dict[str, Any] = json.loads(text)
        for name, value in values.items():
            if isinstance(value, list):
                values[name] = tuple(value)
        return cls(**values)


def prctl(option: int, value: int) -> bool:
    """Whether the kernel accepted it."""
    result: int = ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
    return result == 0


def set_dumpable(dumpable: bool) -> bool:
    """Whether others of the same user may read this process's memory and environment."""
    return prctl(_PR_SET_DUMPABLE, int(dumpable))


def is_dumpable() -> bool:
    """Whether others of the same user may read this process now."""
    found: int = ctypes.CDLL(None).prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0)
    return found == 1


def end_first(score: int) -> None:
    """Have the kernel, when memory is short, end this process before those of a lower score.

    1000, a worker's, comes before anything else (ATTACKS M9); a judge's comes before the programs
    of others, who did not ask for its shapes.
    """
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(score))


def become_subreaper() -> bool:
    """Make orphans below this process its children, so that they can be found and reaped."""
    return prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(number: int) -> None:
    """Get signal `number` when the thread that started this process ends, and so on upwards."""
    prctl(_PR_SET_PDEATHSIG, number)


def main() -> NoReturn:
    """Read the Spec in the last argument, confine this process, become the worker."""
    spec = Spec.from_json(sys.argv[-1])
    status_fd = _arrange_descriptors(spec)
    try:
        if spec.supervise:
            _supervise()
        _confine(spec)
        os.write(status_fd, READY)
        os.execve(spec.argv[0], list(spec.argv), dict(os.environ))
    except OSError as error:
        os.write(status_fd, f"{error.strerror or error}: {error.filename or spec.argv[0]}".encode())
        os._exit(126)


def _arrange_descriptors(spec: Spec) -> int:
    """Leave 0, 1, 2, the channel and the status pipe, which ends at exec."""
    status = fcntl.fcntl(spec.status_fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE_FD)
    channel = fcntl.fcntl(spec.channel_fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE_FD)
    os.dup2(channel, CHANNEL_FD, inheritable=True)
    os.closerange(CHANNEL_FD + 1, status)
    os.closerange(status + 1, _LAST_FD)
    return status


def _supervise() -> None:
    """Fork: the child returns, the parent stays until it ends, then ends all that it left.

    It takes the place of a pid namespace's first process.  Orphans come to it, so a worker's tree
    stays one tree even after setsid and a second fork (ATTACKS M3).
    """
    judge = os.getppid()
    become_subreaper()
    child = os.fork()
    if child == 0:
        return
    os.closerange(0, _LAST_FD)
    set_dumpable(False)
    signal.signal(signal.SIGTERM, _sweep_and_exit)
    end_with_parent(signal.SIGTERM)
    if os.getppid() != judge:
        _sweep_and_exit(signal.SIGTERM, None)
    while True:
        pid, status = os.wait()
        if pid == child:
            break
    tree.end(os.getpid(), deadline_ns=time.monotonic_ns() + _SWEEP_NS, keep=True)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _sweep_and_exit(_number: int, _frame: object) -> NoReturn:
    tree.end(os.getpid(), deadline_ns=time.monotonic_ns() + _SWEEP_NS, keep=True)
    os._exit(128 + signal.SIGTERM)


def _confine(spec: Spec) -> None:
    """Order matters: each step gives up what the ones before it needed."""
    os.umask(0o077)
    end_first(1000)
    _drop_bounding_set()
    if spec.uid is not None:
        os.setgroups([])
        os.setresgid(spec.uid, spec.uid, spec.uid)
        os.setresuid(spec.uid, spec.uid, spec.uid)
    _drop_capabilities()
    if spec.supervise:  # after the change of user, which would clear it
        end_with_parent(signal.SIGKILL)
    # One byte, not none: with none the kernel still feeds a core handler such as apport (core(5)),
    # which reads the memory of a large process before it can be reaped.
    _limit(resource.RLIMIT_CORE, 1)
    _limit(resource.RLIMIT_FSIZE, spec.file_bytes)
    _limit(resource.RLIMIT_NOFILE, spec.open_files)
    _limit(resource.RLIMIT_NPROC, spec.processes)
    os.chdir(spec.cwd)
    if not prctl(_PR_SET_NO_NEW_PRIVS, 1):
        raise OSError(0, "no-new-privileges refused")
    if spec.landlock:
        proc = landlock.PROC_WRITE if spec.cuda else landlock.READ
        landlock.restrict(read=spec.read, write=spec.write, devices=spec.devices, proc=proc)
    if spec.filtered:
        seccomp.install(
            seccomp.program(
                machine=os.uname().machine,
                namespaces=spec.namespaces,
                guard_pid=os.getpid() if spec.guard_signals else None,
            )
        )


def _limit(which: int, value: int) -> None:
    """Soft and hard limit; a lower hard limit that is already there stays."""
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _drop_bounding_set() -> None:
    """So that no program that the worker starts can gain a capability, root's user or not."""
    for capability in range(_LAST_CAPABILITY + 1):
        prctl(_PR_CAPBSET_DROP, capability)
    prctl(_PR_SET_SECUREBITS, _SECURE_NO_ROOT_LOCKED)


def _drop_capabilities() -> None:
    """A change of user has done it; root without one has not."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    empty = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(header, empty):
        raise OSError(ctypes.get_errno(), "capabilities could not be dropped")


if __name__ == "__main__":
    main()
