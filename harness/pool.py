"""Job -> Run on this machine: a judge process per job, a deadline above it, nothing left after."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from harness import codec, confine, environment, interrupts
from harness.errors import HarnessError, UsageError
from harness.model import Job, Run
from harness.progress import STILL, Progress

#: A judge that says nothing for so long hangs: while it waits for a worker it says so (session.py).
SILENCE_NS = 300_000_000_000
STDERR_BYTES = 1 << 16

T = TypeVar("T")
Report: TypeAlias = Callable[[Progress], None]


def run_job(job: Job, report: Report) -> Run:
    """Have a fresh judge process make the Run; see `carry_out`."""
    return carry_out("judge", job, report, Run)


def carry_out(order: str, job: Job, report: Report, kind: type[T]) -> T:
    """Have a fresh judge process carry out one of judge_process.ORDERS.

    Raises UsageError for what the user can mend, HarnessError when the judge or the machine failed;
    in either case no verdict exists.  On any way out the judge and its worker are gone.
    """
    # Orphans of a judge that was killed come to us instead of to init, so that we can end them.
    confine.become_subreaper()
    callers_own = _children()
    process = _start_judge()
    try:
        return _Conversation(process).run(order, job, report, kind)
    finally:
        _end(process, callers_own)


def _start_judge() -> subprocess.Popen[bytes]:
    boot = environment.boot("from harness.judge_process import main", "main()")
    unwritten = ["-B"] if sys.dont_write_bytecode else []
    return subprocess.Popen(
        [sys.executable, "-I", *unwritten, "-c", boot],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # Several judges may share the cores; spinning threads would starve each other.
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    )


class _Conversation:
    """Reads the judge's events and its standard error together, so that neither can block it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._events = b""
        self._errors = b""

    def run(self, order: str, job: Job, report: Report, kind: type[T]) -> T:
        stdin = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps({"order": order, "job": codec.encode(job)}).encode())
            stdin.close()
        for event in self._each():
            if event["event"] == "progress":
                step = codec.decode(Progress, event["value"])
                if step != STILL:
                    report(step)
            elif event["event"] == "result":
                interrupts.in_hand()  # to end the judge takes up to seconds
                return codec.decode(kind, event["value"])
            elif event["event"] == "error":
                wrong = UsageError if event["value"]["kind"] == "usage" else HarnessError
                raise wrong(event["value"]["message"])
        self._process.wait()
        said = self._errors.decode("utf-8", "replace").strip()
        error = HarnessError(
            f"the judge ended without a result ({_how_it_ended(self._process.returncode)})"
            + (f": {said.splitlines()[-1]} (all of it: --debug)" if said else "")
        )
        # A traceback of ours is for whoever asks for one.
        error.add_note(said)
        raise error

    def _each(self) -> Any:
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None and stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            selector.register(stderr, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(SILENCE_NS / 1e9)
                if not ready:
                    raise HarnessError(f"the judge said nothing for {SILENCE_NS // 10**9} s")
                for key, _ in ready:
                    chunk = os.read(key.fd, 1 << 16)
                    if not chunk:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is stderr:
                        self._errors = (self._errors + chunk)[-STDERR_BYTES:]
                    else:
                        self._events += chunk
                        yield from self._lines()

    def _lines(self) -> Any:
        *lines, self._events = self._events.split(b"\n")
        for line in lines:
            yield json.loads(line)


def _how_it_ended(code: int) -> str:
    if code == -signal.SIGKILL:
        return "killed, as the kernel does when memory runs out: a smaller --shape needs less"
    return f"exit {code}"


def _end(process: subprocess.Popen[bytes], callers_own: frozenset[int]) -> None:
    """End the judge and reap whatever it leaves behind, but none of the caller's own children."""
    if process.poll() is None:
        # Let it kill its worker in order, then insist.
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    _sweep(callers_own)


def _children() -> frozenset[int]:
    """This process's children, adopted ones too: those of its main thread, which adopts."""
    me = os.getpid()
    try:
        text = Path(f"/proc/{me}/task/{me}/children").read_text(encoding="ascii")
    except OSError:
        return frozenset()
    return frozenset(map(int, text.split()))


def _sweep(spared: frozenset[int]) -> None:
    """Kill and reap orphans that have come to us."""
    until = time.monotonic() + 2
    while (orphans := _children() - spared) and time.monotonic() < until:
        for child in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
