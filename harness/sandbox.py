"""Start, confine, limit and kill one worker's process tree; say which level of isolation it has.

judge.py makes a Plan, chooses a level that has been proved, starts, and reads the log.  What each
level promises is in SECURITY.md; isolation_probe.py checks it from inside.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from harness import bubblewrap, confine, identity, landlock, scratch, tree
from harness.environment import boot, package_directory
from harness.errors import SandboxError
from harness.identity import Identity
from harness.log import LogReader
from harness.model import Isolation, Limits

_READY_NS = 20_000_000_000  # a launcher takes 50 ms; a loaded machine much longer
_KILL_NS = 5_000_000_000
_STOP_NS = 100_000_000  # a process stops within microseconds, unless the machine is overloaded
_OWN_THREADS = 4  # bubblewrap's two, or the supervisor, in the worker's tree
#: Where a worker may write outside its scratch folder, and the devices of every worker.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
#: torch.compile's pool needs named semaphores in /dev/shm, which Landlock cannot make private.
_RESTRICTED_VARIABLES = (("TORCHINDUCTOR_COMPILE_THREADS", "1"),)


@dataclass(frozen=True, slots=True)
class Plan:
    """One worker: what to run and all that it may touch."""

    argv: tuple[str, ...]
    channel_fd: int  # our number of the end that the worker gets as descriptor 3
    scratch: Path  # private and writable: HOME, TMPDIR and current folder of the worker
    readable: tuple[Path, ...]
    devices: tuple[Path, ...]
    limits: Limits
    environment: tuple[tuple[str, str], ...]
    hidden: tuple[Path, ...] = ()  # never visible, even inside a readable folder


class Confined:
    """A running worker and everything below it.  A context manager: leaving it kills the tree."""

    def __init__(
        self, process: subprocess.Popen[bytes], log: LogReader, plan: Plan, *, root: bool
    ) -> None:
        self.pid = process.pid  # the top of the tree: bubblewrap, or the worker's supervisor
        self.root = root  # the worker is the machine's root, without capabilities
        self._process = process
        self._log = log
        self._plan = plan
        self._siblings = frozenset(tree.children(os.getpid()))
        self._cpu_ns = 0
        self._left: tuple[str, ...] = ()
        self._killed = False

    def __enter__(self) -> Confined:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    def log(self) -> str:
        """What it printed so far: bounded, untrusted."""
        return self._log.text()

    def poll(self) -> str | None:
        """How it ended ("exit code 0", "signal SIGKILL"), None while it runs; never a verdict."""
        code = self._process.poll()
        if code is None:
            return None
        number = -code if code < 0 else code - 128
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(number).name}"
        return f"exit code {code}"

    def cpu_ns(self) -> int:
        """CPU time of the whole tree since it was started; never falls."""
        if self._process.returncode is None:
            self._cpu_ns = max(self._cpu_ns, tree.cpu_ns(self.pid))
        return self._cpu_ns

    def members(self) -> tuple[int, ...]:
        """Every process below the one that was started; none when that is gone."""
        return tree.descendants(self.pid) if self._process.returncode is None else ()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[tree.Stopped]:
        """Hold every process of the worker's for as long as the context lasts, where it runs."""
        held = tree.Stopped((), still=True, turns={})
        if self._process.returncode is None:
            held = tree.stop(self.pid, deadline_ns=time.monotonic_ns() + _STOP_NS)
        try:
            yield held
        finally:
            tree.resume(held.members)

    def memory_bytes(self) -> int:
        """Memory of the whole tree without mapped files; shared pages count once per process."""
        return self._usage().memory_bytes

    def _usage(self) -> tree.Usage:
        # Once it is reaped its number may be another's.
        gone = self._process.returncode is not None
        return tree.Usage(0, 0) if gone else tree.usage(self.pid)

    def breach(self) -> str | None:
        """Which limit the tree is over, in words, or None; for a caller to ask while it waits.

        The limits that the kernel does not hold for a whole tree: memory, disk, and for root's
        user the number of processes.
        """
        limits = self._plan.limits
        usage = self._usage()
        # Unmapped shared memory is nobody's: tests/exploits/zoo/m9_hidden_memory.py.
        used = usage.memory_bytes + max(0, tree.held_bytes(self.pid) - usage.shared_bytes)
        if usage.threads > limits.processes + _OWN_THREADS:
            return f"processes: {usage.threads} with their threads, {limits.processes} allowed"
        if used > limits.memory_bytes:
            # Forked children share most of their pages: divide before accusing.
            used = tree.proportional_bytes(self.pid)
            if used > limits.memory_bytes:
                allowed = limits.memory_bytes / (1 << 30)
                return (
                    f"host memory: {used / (1 << 30):.2f} GiB in use, {allowed:.2f} allowed "
                    "(limits: memory_gib in shapes.yaml)"
                )
        on_disk, files = scratch.usage(self._plan.scratch)
        if on_disk > limits.file_bytes:
            return f"scratch folder: {on_disk} bytes written, {limits.file_bytes} allowed"
        if files > scratch.MAX_FILES:
            return f"scratch folder: more than {scratch.MAX_FILES} files"
        return None

    def kill(self) -> None:
        """End every process of the tree, reap, close the log; within 5 s, any number of times."""
        if self._killed:
            return
        self._killed = True
        deadline_ns = time.monotonic_ns() + _KILL_NS
        left: tuple[int, ...] = ()
        if self._process.poll() is None:
            self.cpu_ns()
            left = tree.end(self.pid, deadline_ns=deadline_ns)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9))
        elif self._process.returncode < 0:
            left = self._end_orphans(deadline_ns)
        self._left = tuple(tree.name(pid) for pid in left if tree.alive(pid))
        self._log.close()

    def _end_orphans(self, deadline_ns: int) -> tuple[int, ...]:
        """The supervisor itself was killed: what it held came to us, if we are a subreaper.

        Ours by exclusion: children that appeared since the start, of a session that is not ours.
        """
        ours = os.getsid(0)
        left: list[int] = []
        for pid in set(tree.children(os.getpid())) - self._siblings:
            if tree.session(pid) not in (None, ours):
                left += tree.end(pid, deadline_ns=deadline_ns)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0 if not tree.alive(pid) else os.WNOHANG)
        return tuple(left)

    def leftovers(self) -> tuple[str, ...]:
        """Names of processes that outlived `kill`: in uninterruptible sleep, usually a driver's."""
        return self._left


def harden_self() -> None:
    """Make this process unreadable for others of its user, and the parent of its orphans.

    When memory runs out it goes before programs that are not ours.  Call it first thing in the
    judge: exec and a change of user undo it.  Raises SandboxError.
    """
    confine.end_first(500)
    if not (confine.set_dumpable(False) and confine.become_subreaper()):
        raise SandboxError("prctl refused PR_SET_DUMPABLE or PR_SET_CHILD_SUBREAPER")


def start(plan: Plan, level: Isolation) -> Confined:
    """Start a worker at `level`; returns once it is confined and its program has replaced ours.

    Call it from a thread that outlives the worker: its end would be the worker's.  Raises
    SandboxError when it cannot be confined as asked; never falls back to a lower level.
    """
    who = identity.of_worker(
        sandboxed=level is Isolation.SANDBOX,
        needs=(*plan.readable, package_directory(), plan.scratch.parent),
    )
    try:
        scratch.prepare(plan.scratch, who.uid)
    except OSError as error:
        raise SandboxError(f"{plan.scratch} cannot be a worker's folder: {error}") from error
    status_read, status_write = os.pipe()
    log_read, log_write = os.pipe()
    try:
        process = _spawn(plan, level, who, status_fd=status_write, log_fd=log_write)
    except OSError as error:
        os.close(log_read)
        os.close(status_read)
        raise SandboxError(f"a worker could not be started: {error}") from error
    finally:
        os.close(status_write)
        os.close(log_write)
    log = LogReader(log_read, plan.limits.log_bytes)
    confined = Confined(process, log, plan, root=who.root)
    try:
        answer = _read_status(status_read)
    finally:
        os.close(status_read)
    if answer != confine.READY:
        confined.kill()
        words = answer.removeprefix(confine.READY).decode("utf-8", "replace")
        reason = words or confined.log().strip() or confined.poll() or "no answer"
        raise SandboxError(f"a worker could not be confined at level {level}: {reason}")
    return confined


def _spawn(
    plan: Plan, level: Isolation, who: Identity, *, status_fd: int, log_fd: int
) -> subprocess.Popen[bytes]:
    spec = _spec(plan, level, who, status_fd=status_fd)
    code = boot("from harness.confine import main", "main()")
    argv = [sys.executable, "-I", "-S", "-B", "-c", code, spec.to_json()]
    environment = dict(plan.environment)
    user: int | None = None
    if level is Isolation.SANDBOX:
        program = shutil.which("bwrap")
        if program is None:
            raise SandboxError("bubblewrap is not installed: apt-get install bubblewrap")
        prefix = bubblewrap.command(
            program=program,
            readable=plan.readable,
            hidden=plan.hidden,
            devices=plan.devices,
            scratch=plan.scratch,
            privileged=who.privileged,
        )
        argv = prefix + argv
        if not who.privileged:  # nobody inside can change user: do it here
            user = who.uid
    elif level is Isolation.RESTRICTED:
        environment |= dict(_RESTRICTED_VARIABLES)
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=log_fd,
        stderr=log_fd,
        env=environment,
        cwd="/",
        pass_fds=(plan.channel_fd, status_fd),
        start_new_session=True,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )


def _spec(plan: Plan, level: Isolation, who: Identity, *, status_fd: int) -> confine.Spec:
    """What the launcher does itself; in a sandbox bubblewrap has done the rest."""
    sandboxed = level is Isolation.SANDBOX
    restricted = level is Isolation.RESTRICTED
    inside = who.uid if who.privileged or not sandboxed else None
    alone = who.uid is not None or (sandboxed and identity.counts_per_namespace())
    signals_open = who.uid is None and not landlock.scopes_signals(landlock.version())
    return confine.Spec(
        argv=plan.argv,
        cwd=str(plan.scratch),
        channel_fd=plan.channel_fd,
        status_fd=status_fd,
        uid=inside,
        file_bytes=plan.limits.file_bytes,
        open_files=plan.limits.open_files,
        processes=plan.limits.processes + (0 if alone else identity.threads_of_this_user()),
        filtered=sandboxed or restricted,
        namespaces=sandboxed,
        supervise=not sandboxed,
        landlock=restricted,
        read=_landlock_paths(plan) if restricted else (),
        write=(str(plan.scratch),),
        devices=(*_DEVICES, *(str(path) for path in plan.devices)),
        cuda=bool(plan.devices),
        guard_signals=restricted and signals_open,
    )


def _landlock_paths(plan: Plan) -> tuple[str, ...]:
    """The readable folders, those around a hidden one replaced by what lies beside it.

    Landlock cannot take a folder out of one that it has let in.
    """
    folders = [path.resolve() for path in plan.readable]
    for hidden in (path.resolve() for path in plan.hidden):
        folders = [part for folder in folders for part in _without(folder, hidden)]
    return tuple(str(path) for path in folders) + (("/sys",) if plan.devices else ())


def _without(folder: Path, hidden: Path) -> list[Path]:
    if folder == hidden:
        return []
    if not hidden.is_relative_to(folder):
        return [folder]
    # A link would let its target in, which may be the hidden folder or one around it; what it
    # points to is let in, if at all, under its own name.
    entries = (entry for entry in folder.iterdir() if not entry.is_symlink())
    return [part for entry in entries for part in _without(entry, hidden)]


def _read_status(fd: int) -> bytes:
    """What the launcher says until its pipe ends, or until it has taken too long."""
    answer = b""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    deadline_ns = time.monotonic_ns() + _READY_NS
    while len(answer) < 4096:
        left_ms = (deadline_ns - time.monotonic_ns()) // 1_000_000
        if left_ms <= 0 or not poller.poll(left_ms):
            return b"no answer in time"
        data = os.read(fd, 4096)
        if not data:
            break
        answer += data
    return answer
