"""Runs where a worker would, tries what a worker must not be able to do, and reports what held.

isolation.py starts it with `Targets` as JSON in the last argument and reads one JSON list of
[claim, held] from the channel.  Standard library only: it is run before every first worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

_CHANNEL_FD = 3
_CLONE_NEWUSER = 0x10000000
_SIZE = 8  # bytes that a reader of another's memory asks for


class Claim(StrEnum):
    """What an isolated worker cannot do, or is."""

    MEMORY = "cannot read the judge's memory, environment or descriptors"
    TRACE = "cannot trace the judge"
    SIGNAL = "cannot signal the judge"
    NETWORK = "cannot reach the network"
    SOCKETS = "cannot reach the host's local sockets"
    WRITE = "cannot write outside its folder"
    READ = "cannot read files that were not given to it"
    CAPABILITIES = "has no capabilities"
    PRIVILEGES = "can gain no privileges"
    FILTER = "is under a system call filter"
    NAMESPACES = "cannot make namespaces"
    PROCESSES = "cannot make more processes than allowed"
    DESCRIPTORS = "has no descriptor but its channel and its log"
    USER = "is not root"
    SCRATCH = "can write and run files in its folder"
    ORPHANS = "leaves no process behind"  # seen from outside, after the kill


@dataclass(frozen=True, slots=True)
class Targets:
    """What to attack; all of it is open to an ordinary process of the judge's user."""

    judge: int
    tcp_port: int
    udp_port: int
    abstract: str  # name of an abstract stream socket, without its leading NUL
    path_socket: str
    secrets: tuple[str, ...]  # files and folders that must not be readable
    folders: tuple[str, ...]  # folders that must not be writable
    processes: int  # forks to try: more than are allowed

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def main() -> None:
    """Check every claim, send the answers, leave a process behind, wait to be killed."""
    values = json.loads(sys.argv[-1])
    values["secrets"], values["folders"] = tuple(values["secrets"]), tuple(values["folders"])
    targets = Targets(**values)
    channel = socket.socket(fileno=os.dup(_CHANNEL_FD))
    answers = [[claim.value, _holds(check, targets)] for claim, check in _CHECKS.items()]
    if os.fork() == 0:  # an orphan of another session that keeps the channel open
        os.setsid()
        if os.fork() == 0:
            signal.pause()
        os._exit(0)
    channel.sendall(json.dumps(answers).encode() + b"\n")
    signal.pause()


def _holds(check: Callable[[Targets], bool], targets: Targets) -> bool:
    try:
        return check(targets)
    except OSError:
        return False  # a claim that could not be checked is not held


def _refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except OSError:
        return True
    return False


def _read(path: str) -> None:
    if os.path.isdir(path):
        os.listdir(path)
        return
    with open(path, "rb") as file:
        file.read(1)


def _memory(targets: Targets) -> bool:
    base = f"/proc/{targets.judge}"
    return all(
        _refused(lambda path=path: _read(f"{base}/{path}"))  # type: ignore[misc]
        for path in ("mem", "environ", "maps", "fd/0")
    )


def _trace(targets: Targets) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(_SIZE)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), _SIZE)
    seize = 0x4206  # PTRACE_SEIZE: does not stop its target, should it succeed
    traced = libc.ptrace(seize, targets.judge, None, None) == 0
    # The address is the same library's in a judge that was forked, and wrong otherwise: EFAULT
    # would then say that the judge could be read.
    copied = libc.process_vm_readv(targets.judge, vector, 1, vector, 1, 0) >= 0
    return not traced and not copied and ctypes.get_errno() != 14


def _signal(targets: Targets) -> bool:
    return _refused(lambda: os.kill(targets.judge, 0))


def _network(targets: Targets) -> bool:
    def tcp() -> None:
        with socket.create_connection(("127.0.0.1", targets.tcp_port), timeout=0.2):
            pass

    # In a network namespace of its own this succeeds and arrives nowhere: isolation.py looks.
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.sendto(b"x", ("127.0.0.1", targets.udp_port))
    return _refused(tcp)


def _sockets(targets: Targets) -> bool:
    def reach(address: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as out:
            out.settimeout(0.2)
            out.connect(address)

    return _refused(lambda: reach("\0" + targets.abstract)) and _refused(
        lambda: reach(targets.path_socket)
    )


def _write(targets: Targets) -> bool:
    def create(folder: str) -> None:
        path = os.path.join(folder, f"written-by-{os.getpid()}")
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
        os.unlink(path)

    return all(
        _refused(lambda folder=folder: create(folder))  # type: ignore[misc]
        for folder in targets.folders
    )


def _secrets(targets: Targets) -> bool:
    return all(
        _refused(lambda path=path: _read(path))  # type: ignore[misc]
        for path in targets.secrets
    )


def _status(name: str) -> str:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return line.split(":", 1)[1].strip()
    return ""


def _capabilities(_targets: Targets) -> bool:
    # The bounding set is left out: without privileges to gain it bounds nothing, and only root
    # can empty it.
    names = ("CapInh", "CapPrm", "CapEff", "CapAmb")
    return all(int(_status(name), 16) == 0 for name in names)


def _privileges(_targets: Targets) -> bool:
    return _status("NoNewPrivs") == "1"


def _filter(_targets: Targets) -> bool:
    return _status("Seccomp") == "2"


def _namespaces(_targets: Targets) -> bool:
    return bool(ctypes.CDLL(None).unshare(_CLONE_NEWUSER))


def _processes(targets: Targets) -> bool:
    """Forks until refused; every child waits on a pipe that then ends."""
    read, write = os.pipe()
    made: list[int] = []
    refused = False
    for _ in range(targets.processes):
        try:
            child = os.fork()
        except BlockingIOError:
            refused = True
            break
        if child == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        made.append(child)
    os.close(write)
    os.close(read)
    for child in made:
        os.waitpid(child, 0)
    return refused


def _descriptors(_targets: Targets) -> bool:
    open_ones = set()
    for number in range(256):
        with contextlib.suppress(OSError):
            os.fstat(number)
            open_ones.add(number)
    # The channel's copy made in `main` is ours.
    return len(open_ones) == 5 and {0, 1, 2, _CHANNEL_FD} < open_ones


def _user(_targets: Targets) -> bool:
    return os.getuid() != 0 and os.geteuid() != 0


def _scratch(_targets: Targets) -> bool:
    """A defence that also stops honest work is none: a built library must load."""
    path = Path(os.environ["TMPDIR"]) / "probe.sh"
    path.write_text("#!/bin/sh\nexit 7\n")
    path.chmod(0o700)
    code = os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(path, [str(path)], {}), 0)[1])
    path.unlink()
    return code == 7


_CHECKS: dict[Claim, Callable[[Targets], bool]] = {
    Claim.MEMORY: _memory,
    Claim.TRACE: _trace,
    Claim.SIGNAL: _signal,
    Claim.NETWORK: _network,
    Claim.SOCKETS: _sockets,
    Claim.WRITE: _write,
    Claim.READ: _secrets,
    Claim.CAPABILITIES: _capabilities,
    Claim.PRIVILEGES: _privileges,
    Claim.FILTER: _filter,
    Claim.NAMESPACES: _namespaces,
    Claim.PROCESSES: _processes,
    Claim.DESCRIPTORS: _descriptors,
    Claim.USER: _user,
    Claim.SCRATCH: _scratch,
}


@contextlib.contextmanager
def listeners(folder: Path) -> Iterator[tuple[int, socket.socket, str, str]]:
    """The judge's side: open TCP, UDP, abstract and path sockets that an attack would reach."""
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        abstract = f"harness-probe-{os.getpid()}-{time.monotonic_ns()}"
        for address in ("\0" + abstract, str(folder / "socket")):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(address)
            listener.listen()
        os.chmod(folder / "socket", 0o777)
        yield tcp.getsockname()[1], udp, abstract, str(folder / "socket")


if __name__ == "__main__":
    main()
