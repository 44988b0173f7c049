"""The judge as a process: a Job on standard input, events on standard output, then it is gone.

One per submission, so a driver or a library that a submission broke is not met by the next one.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from harness import codec, device_lock, isolation, machine, sandbox
from harness import task as tasks
from harness.compile_cache import cache_key, scratch_folder
from harness.devices import select
from harness.errors import HarnessError, UsageError
from harness.judge import Judge
from harness.launch import Launcher
from harness.model import Job, Limits, Mode, Run, Task
from harness.progress import Progress
from harness.timing import with_overrides


def main() -> None:
    """Read a Job, judge it, write events: progress, then exactly one of `run` and `error`."""
    sandbox.harden_self()
    events = _take_over_stdout()

    def emit(progress: Progress) -> None:
        _write(events, "progress", codec.encode(progress))

    try:
        job = codec.decode(Job, json.load(sys.stdin))
        _write(events, "run", codec.encode(judge_job(job, emit)))
    except HarnessError as error:
        kind = "usage" if isinstance(error, UsageError) else "harness"
        _write(events, "error", {"kind": kind, "message": str(error)})


def judge_job(job: Job, emit: Any) -> Run:
    """Judge one job on this machine.  Raises HarnessError when the machine or the task fails."""
    root = Path(job.task_root)
    task = tasks.load(root)
    modules = tasks.load_modules(root)
    device, budget = select.device(job.device)
    budget = with_overrides(budget, job.processes, job.budget_ns)
    limits = _limits(task, job)
    level = isolation.choose(job.isolation)
    key = cache_key(job.submission.sha256, *(f"{k}={v}" for k, v in machine.versions()))
    with (
        _device_to_itself(device.name, job.mode, emit),
        scratch_folder(key, cache_root()) as scratch,
    ):
        launcher = Launcher(
            scratch=scratch,
            task_root=root,
            source=job.submission.source,
            display=job.submission.path,
            device=device.name,
            level=level,
            limits=limits,
            emulate=select.needs_emulation(modules, device.name),
            deadline_ns=time.monotonic_ns() + limits.run_ns,
            devices=select.device_nodes(device.name),
            arch_list=select.arch_list(device.name),
        )
        return Judge(job, task, modules, device, launcher, budget, emit).run()


def _limits(task: Task, job: Job) -> Limits:
    if job.timeout_ns is None:
        return task.limits
    return replace(
        task.limits,
        run_ns=job.timeout_ns,
        import_ns=min(task.limits.import_ns, job.timeout_ns),
        call_ns=min(task.limits.call_ns, job.timeout_ns),
    )


@contextlib.contextmanager
def _device_to_itself(name: str, mode: Mode, emit: Any) -> Iterator[None]:
    """Hold the device while something is timed; two timed runs at once are both wrong."""
    if mode is Mode.TEST and name == "cpu":
        yield
        return
    with device_lock.hold(name, waiting=lambda: emit(Progress("waiting for", name))):
        yield


def cache_root() -> Path:
    """Where compiled code of submissions is kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kernel-harness" / "compiled"


def _take_over_stdout() -> TextIO:
    """Keep the event stream to ourselves: whatever else prints goes to standard error."""
    events = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    return events


def _write(events: TextIO, kind: str, value: Any) -> None:
    events.write(json.dumps({"event": kind, "value": value}) + "\n")
    events.flush()
