"""Which levels of isolation this machine offers, each proved from inside, and which one to use.

judge.py chooses before it starts a worker; `harness doctor` shows `levels`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from harness import confine, sandbox
from harness.environment import (
    default_readable,
    package_directory,
    worker_argv,
    worker_environment,
)
from harness.errors import SandboxError
from harness.isolation_probe import Claim, Targets, listeners
from harness.model import Isolation, IsolationPolicy, Limits
from harness.sandbox import Plan

_PROBE_NS = 20_000_000_000  # it takes 0.1 s; a loaded machine much longer
_CLOSED_MS = 5000  # for the kernel to close what a killed tree held
_ANSWER_BYTES = 1 << 16
_PROBE_PROCESSES = 24  # allowed, and half of what the probe tries: enough to see the limit

#: What each level must prove.  Root's worker that had to stay root is not counted by the kernel
#: and says so (`Confined.root`); without a sandbox nothing is promised but an own process tree.
_NEEDED: dict[Isolation, frozenset[Claim]] = {
    Isolation.SANDBOX: frozenset(Claim),
    Isolation.RESTRICTED: frozenset(Claim) - {Claim.USER, Claim.PROCESSES},
    Isolation.SEPARATED: frozenset({Claim.SCRATCH, Claim.ORPHANS}),
}


@dataclass(frozen=True, slots=True)
class Proof:
    """What was tried from inside one level, and what held."""

    claims: tuple[tuple[Claim, bool], ...]
    root: bool  # the worker was the machine's root
    duration_ns: int

    def failed(self, needed: frozenset[Claim]) -> tuple[Claim, ...]:
        """The needed claims that did not hold or were not answered."""
        held = {claim for claim, ok in self.claims if ok}
        held -= {claim for claim, ok in self.claims if not ok}
        return tuple(claim for claim in Claim if claim in needed - held)


@dataclass(frozen=True, slots=True)
class LevelReport:
    """Whether this machine offers a level; if not, why not and what would help."""

    level: Isolation
    available: bool
    reason: str = ""
    remedy: str = ""
    proof: Proof | None = None


def levels() -> tuple[LevelReport, ...]:
    """Every level, strongest first, as found on this machine by trying it."""
    return tuple(_report(level) for level in Isolation)


def choose(policy: IsolationPolicy) -> Isolation:
    """The level to run at: the best that is proved, or SandboxError if `policy` asks for more."""
    if policy is IsolationPolicy.OFF:
        return Isolation.SEPARATED
    best = _report(Isolation.SANDBOX)
    if policy is IsolationPolicy.REQUIRE and not best.available:
        raise SandboxError(f"isolation: {best.reason}; {best.remedy}")
    # An exhausted search ends at two processes: the label says what that is worth.
    for level in (Isolation.SANDBOX, Isolation.RESTRICTED):
        if _report(level).available:
            return level
    return Isolation.SEPARATED


@cache
def _report(level: Isolation) -> LevelReport:
    """Once per process: what the machine offers does not change while a judge lives.

    Tried again before it is denied: on a machine that somebody overloads a probe may be too slow,
    and the next submission would be judged with less around it.
    """
    report = _tried(level)
    return report if report.available else _tried(level)


def _tried(level: Isolation) -> LevelReport:
    with tempfile.TemporaryDirectory(prefix="harness-probe-", dir="/tmp") as folder:
        scratch = Path(folder)
        plan = Plan(
            argv=(),
            channel_fd=-1,
            scratch=scratch,
            readable=default_readable(),
            devices=(),
            limits=Limits(),
            environment=worker_environment(scratch, cuda=False),
        )
        try:
            proof = prove(plan, level)
        except SandboxError as error:
            return LevelReport(level, False, str(error), _remedy(level, str(error)))
    failed = proof.failed(_NEEDED[level])
    if failed:
        reason = f"a worker at level {level} " + "; ".join(f"not: {claim}" for claim in failed)
        return LevelReport(level, False, reason, _remedy(level, reason), proof)
    return LevelReport(level, True, proof=proof)


def prove(plan: Plan, level: Isolation) -> Proof:
    """Run the probe in `plan`'s place, with its files, devices and user, and kill it.

    `plan.argv` and `plan.channel_fd` are replaced, and its process limit lowered.  Raises
    SandboxError when a worker cannot be started or the probe does not answer.
    """
    started_ns = time.monotonic_ns()
    ours, theirs = socket.socketpair()
    with (
        ours,
        tempfile.TemporaryDirectory(prefix="harness-canary-", dir="/tmp") as folder,
        listeners(Path(folder)) as (tcp_port, udp, abstract, path_socket),
        _hardened(),
    ):
        with theirs:
            targets = Targets(
                judge=os.getpid(),
                tcp_port=tcp_port,
                udp_port=udp.getsockname()[1],
                abstract=abstract,
                path_socket=path_socket,
                secrets=_secrets(Path(folder), plan.hidden),
                folders=(folder, str(package_directory()), "/usr", "/etc", "/var/tmp"),
                processes=2 * _PROBE_PROCESSES,
            )
            probe = replace(
                plan,
                argv=worker_argv("harness.isolation_probe", targets.to_json()),
                channel_fd=theirs.fileno(),
                limits=replace(plan.limits, processes=_PROBE_PROCESSES),
            )
            confined = sandbox.start(probe, level)
        with confined:
            answer = _receive(ours, confined)
        claims = _parse(answer, confined)
        if _arrived(udp):
            claims.append((Claim.NETWORK, False))
        claims.append((Claim.ORPHANS, _ended(ours, confined)))
    return Proof(tuple(claims), confined.root, time.monotonic_ns() - started_ns)


def _secrets(folder: Path, hidden: tuple[Path, ...]) -> tuple[str, ...]:
    """A file that everybody may read, the password file, and what this plan hides."""
    canary = folder / "canary"
    canary.write_text("not for a worker\n")
    folder.chmod(0o777)
    canary.chmod(0o644)
    return (str(canary), "/etc/passwd", *(str(path) for path in hidden))


def _receive(channel: socket.socket, confined: sandbox.Confined) -> bytes:
    """One line, bounded in length and time."""
    answer = b""
    deadline_ns = time.monotonic_ns() + _PROBE_NS
    while not answer.endswith(b"\n") and len(answer) < _ANSWER_BYTES:
        left_s = (deadline_ns - time.monotonic_ns()) / 1e9
        if left_s <= 0:
            break
        channel.settimeout(left_s)
        try:
            data = channel.recv(_ANSWER_BYTES)
        except TimeoutError:
            break
        if not data:
            break
        answer += data
    return answer


def _parse(answer: bytes, confined: sandbox.Confined) -> list[tuple[Claim, bool]]:
    try:
        return [(Claim(text), held is True) for text, held in json.loads(answer)]
    except ValueError as error:
        detail = confined.log().strip() or confined.poll() or "no answer"
        raise SandboxError(f"the isolation probe failed: {detail}") from error


def _ended(channel: socket.socket, confined: sandbox.Confined) -> bool:
    """Whether nobody holds the worker's end of the channel any more."""
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    return not confined.leftovers() and bool(poller.poll(_CLOSED_MS)) and channel.recv(1) == b""


def _arrived(listener: socket.socket) -> bool:
    try:
        return bool(listener.recv(1))
    except BlockingIOError:
        return False


@contextlib.contextmanager
def _hardened() -> Iterator[None]:
    """The probe attacks this process, which must be as hard a target as the judge is."""
    before = confine.is_dumpable()
    confine.set_dumpable(False)
    try:
        yield
    finally:
        confine.set_dumpable(before)


def _remedy(level: Isolation, reason: str) -> str:
    """What an administrator can do about it."""
    if level is Isolation.SANDBOX:
        if "not installed" in reason:
            return "install it: apt-get install bubblewrap"
        if "ermission denied" in reason and "exec" in reason:
            return "make the interpreter readable for other users: chmod -R o+rX"
        return (
            "allow user namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0 on "
            "Ubuntu, --security-opt seccomp=unconfined or --cap-add SYS_ADMIN in a container"
        )
    if level is Isolation.RESTRICTED:
        return "use Linux 5.13 or newer with Landlock enabled (lsm=landlock,...)"
    return "see the reason"
