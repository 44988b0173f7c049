"""Advice from a static scanner, kernelguard, where it is installed: never a verdict.

Patterns miss most attacks and accuse honest code, so what they find is shown beside a run for a
person to read.  The scanner reads hostile text with expressions that backtrack: it gets a process
of its own, little memory and ten seconds (tests/exploits/zoo/o4_scanner_bomb.py).
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

from harness import environment

MODULE = "kernelguard"
TIME_NS = 10_000_000_000
MEMORY_BYTES = 1 << 30
ANSWER_BYTES = 1 << 20
MAX_FINDINGS = 20
EVIDENCE_CHARS = 160

_BOOT = f"""
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES}))
resource.setrlimit(resource.RLIMIT_CPU, ({TIME_NS // 10**9}, {TIME_NS // 10**9}))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
sys.argv = [{MODULE!r}, "--api-mode"]
runpy.run_module({MODULE!r}, run_name="__main__", alter_sys=True)
"""


def notes(source: str) -> tuple[str, ...]:
    """What the scanner says of a submission's text, one line each; nothing without a scanner.

    Takes 0.5 s as a rule and ten seconds at most; a scan that fails or is given up is a note too.
    """
    if importlib.util.find_spec(MODULE) is None:
        return ()
    answer = _scan(source.encode("utf-8", "surrogateescape"))
    if answer is None:
        return (f"static scan: not finished within {TIME_NS // 10**9} s",)
    try:
        return _worded(json.loads(answer))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return ("static scan: failed on this text",)


def _worded(report: dict[str, Any]) -> tuple[str, ...]:
    """The report as lines; its evidence is text of the submission's."""
    found = [
        f"static scan: {_plain(hit.get('pattern'))} ({_plain(hit.get('severity'))}): "
        f"{_plain(hit.get('evidence'))}"
        for hit in report["matched_patterns"]
    ]
    if len(found) > MAX_FINDINGS:
        more = f"static scan: {len(found) - MAX_FINDINGS} more findings"
        found = [*found[:MAX_FINDINGS], more]
    return tuple(found)


def _plain(value: object) -> str:
    text = " ".join(str(value).encode("utf-8", "backslashreplace").decode().split())
    return text if len(text) <= EVIDENCE_CHARS else f"{text[:EVIDENCE_CHARS]}..."


def _scan(source: bytes) -> bytes | None:
    """The scanner's answer, bounded; None when it took too long."""
    path = f"import sys; sys.path[:] = {environment.installed(sys.path)!r}\n"
    text = os.memfd_create("submission", os.MFD_CLOEXEC)
    try:
        os.write(text, source)
        os.lseek(text, 0, os.SEEK_SET)
        process = subprocess.Popen(
            [sys.executable, "-I", "-B", "-c", path + _BOOT],
            stdin=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(text)
    assert process.stdout is not None
    try:
        return _read(process.stdout.fileno(), time.monotonic_ns() + TIME_NS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def _read(descriptor: int, deadline_ns: int) -> bytes | None:
    answer = b""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    while len(answer) <= ANSWER_BYTES:
        left_ms = (deadline_ns - time.monotonic_ns()) // 1_000_000
        if left_ms <= 0 or not poller.poll(left_ms):
            return None
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            break
        answer += chunk
    return answer
