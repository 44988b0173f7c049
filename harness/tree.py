"""A process and all its descendants, by /proc: what they use, and how to end every one of them.

Used by sandbox.py in the judge and by confine.py above a worker.  Processes in a pid namespace
below ours have numbers here too, so a sandbox's are seen like any others.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

_PROC = Path("/proc")
_LIBC = ctypes.CDLL(None)
_SCHEDSTAT = "schedstat"
_PAUSE_S = 0.002  # between looks at a tree that is ending
_ROUNDS = 50  # passes that stop a tree which forks while it is being stopped


def children(pid: int) -> tuple[int, ...]:
    """The processes whose parent is `pid`, zombies too; empty when it is gone."""
    found: list[int] = []
    try:
        for task in os.listdir(_PROC / str(pid) / "task"):
            text = (_PROC / str(pid) / "task" / task / "children").read_bytes()
            found += (int(word) for word in text.split())
    except FileNotFoundError:
        if (_PROC / "self/task" / str(os.getpid()) / "children").exists():
            return tuple(found)
        return _children_by_scan(pid)  # a kernel without CONFIG_PROC_CHILDREN
    except (ProcessLookupError, NotADirectoryError):
        pass
    return tuple(found)


def _children_by_scan(pid: int) -> tuple[int, ...]:
    found = []
    for name in os.listdir(_PROC):
        if name.isdigit() and (fields := _stat(int(name))) and int(fields[1]) == pid:
            found.append(int(name))
    return tuple(found)


def descendants(pid: int) -> tuple[int, ...]:
    """Every process below `pid`, itself not; parents before their children."""
    found: list[int] = []
    level = children(pid)
    while level:
        found += level
        level = tuple(child for parent in level for child in children(parent))
    return tuple(found)


def _stat(pid: int, thread: int | None = None) -> list[str] | None:
    """The fields of /proc/pid/stat from the state on; the name before it may hold anything."""
    folder = _PROC / str(pid)
    if thread is not None:
        folder = folder / "task" / str(thread)
    try:
        text = (folder / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


def session(pid: int) -> int | None:
    """Its session's number, None when it is gone."""
    fields = _stat(pid)
    return None if fields is None else int(fields[3])


def alive(pid: int) -> bool:
    """Whether the process still runs; a zombie does not."""
    fields = _stat(pid)
    return fields is not None and fields[0] not in "ZX"


def name(pid: int) -> str:
    """The command's name, "?" when it is gone."""
    try:
        return (_PROC / str(pid) / "comm").read_text(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return "?"


def cpu_ns(pid: int) -> int:
    """CPU time of a tree so far, ended and reaped members included (those in 10 ms steps)."""
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    members = (pid, *descendants(pid))
    total = sum(clocks(members).values())
    for member in members:
        if (fields := _stat(member)) is not None:
            total += (int(fields[13]) + int(fields[14])) * tick_ns  # cutime, cstime
    return total


def clocks(pids: Iterable[int]) -> dict[int, int]:
    """CPU time of each process in ns: all its threads, ended ones too; what is gone is left out.

    A sum over a tree may fall, when a member ends whose parent does not count it: these never do.
    """
    found = {}
    for pid in pids:
        # MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of linux/posix-timers.h.
        with contextlib.suppress(OSError):
            found[pid] = time.clock_gettime_ns((~pid << 3) | 2)
    return found


#: None for a thread that was listed and gone when it was looked at: another one has followed it.
Turns: TypeAlias = dict[tuple[int, int], tuple[int, ...] | None]


def turns(pids: Iterable[int]) -> Turns:
    """How often each thread of these processes was given a processor so far; exact.

    A CPU clock moves only with the kernel's tick, 4 ms, while its thread runs on another processor.
    """
    found: Turns = {}
    for pid in pids:
        for thread in _threads(pid):
            found[pid, thread] = _turn(pid, thread)
    return found


def _turn(pid: int, thread: int) -> tuple[int, ...] | None:
    folder = f"{_PROC}/{pid}/task/{thread}"
    with (
        contextlib.suppress(OSError, ValueError, IndexError),
        open(f"{folder}/{_SCHEDSTAT}", "rb", 0) as file,  # a window's clock runs
    ):
        if count := int(file.read().split()[2]):
            return (count,)
    # A kernel without CONFIG_SCHEDSTATS: who runs now has not been counted, but is no sleeper.
    try:
        lines = Path(folder, "status").read_bytes().splitlines()
    except OSError:
        return None
    switches = [int(line.split()[1]) for line in lines if b"ctxt_switches" in line]
    return (*switches, int(_moves(pid, thread)))


def oom_kills() -> int:
    """How many processes the kernel has ended for want of memory since it started; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError):
        for line in (_PROC / "vmstat").read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


@dataclass(frozen=True, slots=True)
class Usage:
    """What a tree holds at one moment."""

    memory_bytes: int  # resident or swapped, without mapped files; shared pages once per process
    threads: int
    shared_bytes: int = 0  # the shared part of it


def usage(pid: int) -> Usage:
    """Memory and threads of a tree, the root's included; zero when it is gone."""
    members = [_member_usage(member) for member in (pid, *descendants(pid))]
    return Usage(sum(use.memory_bytes for use in members), sum(use.threads for use in members))


def _member_usage(pid: int) -> Usage:
    memory = threads = shared = 0
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "status").read_bytes().splitlines():
            if line.startswith((b"RssAnon:", b"RssShmem:", b"VmSwap:")):
                memory += int(line.split()[1]) << 10
            elif line.startswith(b"Threads:"):
                threads = int(line.split()[1])
    return Usage(memory, threads, shared)


def held_bytes(pid: int) -> int:
    """Memory in files without a name that a tree holds open: mapped or not, each counted once.

    Filled and unmapped, it is in no process's resident memory.  Zero where it may not be looked at.
    """
    probe = os.memfd_create("probe", os.MFD_CLOEXEC)
    device = os.fstat(probe).st_dev  # one of the kernel's own for all of them
    os.close(probe)
    files: dict[int, int] = {}
    for member in (pid, *descendants(pid)):
        with contextlib.suppress(OSError), os.scandir(_PROC / str(member) / "fd") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    if status.st_dev == device:
                        files[status.st_ino] = status.st_blocks * 512
    return sum(files.values())


def proportional_bytes(pid: int) -> int:
    """Its memory with shared pages divided among their users, where the kernel tells us.

    What it holds in files without a name is counted whole, mapped or not.  Some ms a process: for a
    tree that seems too large, since forked children share most pages.
    """
    total = shared = 0
    for member in (pid, *descendants(pid)):
        try:
            text = (_PROC / str(member) / "smaps_rollup").read_bytes()
        except PermissionError:  # the supervisor, which is as closed as the judge
            total += _member_usage(member).memory_bytes
            continue
        except (FileNotFoundError, ProcessLookupError):
            continue
        for line in text.splitlines():
            if line.startswith((b"Pss_Anon:", b"SwapPss:")):
                total += int(line.split()[1]) << 10
            elif line.startswith(b"Pss_Shmem:"):
                shared += int(line.split()[1]) << 10
    return total + max(shared, held_bytes(pid))


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


class Stopped(NamedTuple):
    """What was told to stop, whether all of it stands still, and its turns until then.

    Whoever gets another turn before it is resumed woke itself: a timer can send SIGCONT
    (tests/exploits/zoo/b8_wakes_itself.py).
    """

    members: tuple[int, ...]
    still: bool
    turns: Turns


def stop(pid: int, *, deadline_ns: int) -> Stopped:
    """Stop everything below a process, which itself goes on.

    Returns once no member runs any more, or at `deadline_ns` of the monotonic clock.
    """
    members = _stop_all(pid)
    while running := [member for member in members if _running(member)]:
        if time.monotonic_ns() > deadline_ns:
            break
        _stop_threads(running)
        time.sleep(_PAUSE_S / 20)
    # Their turns first: who wakes after that is known by them, who has woken before by its state.
    counted = turns(members)
    still = not any(map(_running, members)) and not set(descendants(pid)) - members
    return Stopped(tuple(members), still, counted)


def resume(pids: Iterable[int]) -> None:
    """Let stopped processes go on."""
    _send(pids, signal.SIGCONT)


def _stop_threads(pids: Iterable[int]) -> None:
    """SIGSTOP to each thread, not to the process.

    The kernel hands a process's signal to its first thread; where that waits in vfork(), nothing
    takes it and the others go on (tests/exploits/zoo/b8_daemon_in_vfork.py).
    """
    for pid in pids:
        for thread in _threads(pid):
            _LIBC.tgkill(pid, thread, signal.SIGSTOP)  # one that is gone is no error


def _threads(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(_PROC / str(pid) / "task")]
    return []


def _stop_all(pid: int) -> set[int]:
    """Send SIGSTOP to every descendant, in rounds: a tree may fork while it is being stopped."""
    members: set[int] = set()
    for _ in range(_ROUNDS):
        found = set(descendants(pid)) - members
        if not found:
            break
        _stop_threads(found)
        members |= found
    return members


def _running(pid: int) -> bool:
    """Whether any thread does; the first may be a zombie or wait in the kernel beside others."""
    return any(_moves(pid, thread) for thread in _threads(pid))


def _moves(pid: int, thread: int) -> bool:
    fields = _stat(pid, thread)
    if fields is None:
        # What stands still does not end: threads of some us each follow one another here.
        return alive(pid)
    return fields[0] not in "TtZXD"  # D: in the kernel, and stops there


def end(pid: int, *, deadline_ns: int, keep: bool = False) -> tuple[int, ...]:
    """End a whole tree by SIGKILL; `keep` spares the root.  Returns those still alive.

    Everything is stopped first: killed one by one, a fork bomb refills the places that it loses.
    Orphans are reaped where this process is their subreaper; the root is left to its parent.
    `deadline_ns` is of the monotonic clock.
    """
    members = _stop_all(pid)
    targets = members if keep else members | {pid}
    while True:
        _send(targets, signal.SIGKILL)
        for member in members - {pid}:
            # Not ours while its own parent lives; ours to reap once that is gone.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(member, os.WNOHANG)
        below = set(descendants(pid))
        members, targets = members | below, targets | below
        left = tuple(sorted(member for member in targets if alive(member)))
        if not left or time.monotonic_ns() > deadline_ns:
            return left
        # Whoever has ended is signalled no more: the number may be another's by now.
        targets = set(left)
        time.sleep(_PAUSE_S)
