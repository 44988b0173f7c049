"""Start small untrusted programs in a sandbox, for the tests of isolation."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness import isolation, landlock, sandbox
from harness.environment import default_readable, worker_environment
from harness.model import Doubt, Isolation, IsolationPolicy, Limits
from harness.render.words import DOUBTS as WHY
from harness.sandbox import Confined, Plan

DEADLINE_S = 20.0


def require(level: Isolation) -> None:
    """Skip, with the reason, where the machine lacks the level; fail where only we do."""
    report = next(report for report in isolation.levels() if report.level is level)
    if report.available:
        return
    # A level that is denied because a defence is broken must not look like a machine without it.
    if _machine_has(level):
        pytest.fail(f"this machine can do it, and yet: {report.reason}")
    pytest.skip(f"{report.reason}; {report.remedy}")


def require_rank() -> None:
    """Skip, with the reason, where nothing is ranked: the worker of root would be root as well."""
    level = isolation.choose(IsolationPolicy.AUTO)
    report = next(report for report in isolation.levels() if report.level is level)
    if report.proof is not None and report.proof.root:
        pytest.skip(f"nobody is ranked here: {WHY[Doubt.ROOT_WORKER]}")


def _machine_has(level: Isolation) -> bool:
    """Whether the kernel and its tools offer what a level is made of, asked without our code."""
    if level is Isolation.RESTRICTED:
        return landlock.version() > 0
    program = shutil.which("bwrap")
    if level is Isolation.SEPARATED or program is None:
        return level is Isolation.SEPARATED
    command = [program, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder below /tmp: pytest's own are closed to other users, which a worker may be."""
    folder = Path(tempfile.mkdtemp(prefix="harness-test-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_plan(scratch: Path, code: str, *arguments: str, limits: Limits | None = None) -> Plan:
    """A plan for a program given as text; its channel is still missing."""
    return Plan(
        argv=(sys.executable, "-I", "-S", "-c", code, *arguments),
        channel_fd=-1,
        scratch=scratch,
        readable=default_readable(),
        devices=(),
        limits=limits or Limits(),
        environment=worker_environment(scratch, cuda=False),
    )


@contextlib.contextmanager
def running(plan: Plan, level: Isolation) -> Iterator[tuple[Confined, socket.socket]]:
    """The worker and the judge's end of its channel."""
    ours, theirs = socket.socketpair()
    with ours:
        ours.settimeout(DEADLINE_S)
        with theirs:
            confined = sandbox.start(replace(plan, channel_fd=theirs.fileno()), level)
        with confined:
            yield confined, ours


def wait_for_end(confined: Confined) -> str:
    """How it ended."""
    until = time.monotonic() + DEADLINE_S
    while (ending := confined.poll()) is None:
        assert time.monotonic() < until, f"still running: {confined.log()}"
        time.sleep(0.005)
    return ending


def wait_until_closed(channel: socket.socket) -> None:
    """Until no process holds the other end; TimeoutError when one stays."""
    while channel.recv(1 << 16):
        pass
