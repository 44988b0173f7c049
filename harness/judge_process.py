"""The judge as a process: a Job on standard input, events on standard output, then it is gone.

One per submission, so a driver or a library that a submission broke is not met by the next one.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from harness import codec, confine, device_lock, guard, isolation, machine, sandbox, sources
from harness import task as tasks
from harness.compile_cache import cache_key, scratch_folder
from harness.devices import present
from harness.errors import HarnessError, UsageError
from harness.launch import Launcher
from harness.model import Budget, Job, Limits, Mode, Run, Task, Verdict
from harness.profile_values import ProfileReport
from harness.progress import STILL, Emit, Progress, Stages
from harness.selftest_values import SelfTestReport
from harness.task import TaskModules
from harness.timing import with_overrides

if TYPE_CHECKING:
    from harness.window import Device


def main() -> None:
    """Read an order, carry it out, write events: progress, then exactly one `result` or `error`."""
    sandbox.harden_self()
    _end_with_parent()
    events = _take_over_stdout()

    def emit(progress: Progress) -> None:
        _write(events, "progress", codec.encode(progress))

    try:
        order = json.load(sys.stdin)
        job = codec.decode(Job, order["job"])
        _write(events, "result", codec.encode(ORDERS[order["order"]](job, emit)))
    except HarnessError as error:
        kind = "usage" if isinstance(error, UsageError) else "harness"
        _write(events, "error", {"kind": kind, "message": str(error)})
    sys.stdout.flush()
    sys.stderr.flush()
    # Taking torch apart again would take 0.8 s, and the caller waits for our end.
    os._exit(0)


def judge_job(job: Job, emit: Emit) -> Run:
    """Judge one job on this machine.  Raises HarnessError when the machine or the task fails."""
    stages = emit = Stages(emit)
    advice = guard.notes(job.submission.source)  # before the device is held
    passed = False
    with _court(job, emit, lambda: passed) as (task, modules, device, launcher, budget):
        from harness.judge import Judge

        run = Judge(job, task, modules, device, launcher, budget, emit).run()
        passed = run.verdict is Verdict.PASSED
    return replace(run, notes=run.notes + advice, stages=stages.spent())


def profile_job(job: Job, emit: Emit) -> ProfileReport:
    """Profile a submission's calls on the ranked shapes, or on those of the job."""
    with _court(job, emit, lambda: True) as (task, modules, device, launcher, _):
        from harness.bench import Bench
        from harness.profile import profile

        bench = Bench(launcher, device, emit, timed=False)
        traces = Path(job.task_root) / "results" / "profiles" / job.submission.name
        shapes = job.shapes or task.ranked
        try:
            return profile(task, modules, device, bench, shapes, (launcher.scratch, traces), emit)
        finally:
            bench.close()


def selftest_job(job: Job, emit: Emit) -> SelfTestReport:
    """Hold this machine's clock against kernels of known length; needs no submission."""
    with _court(job, emit, lambda: True) as (task, _, device, launcher, _):
        from harness.selftest import metrology

        return metrology(task, device, launcher, emit)


#: What a judge process can be asked for.
ORDERS: dict[str, Callable[[Job, Emit], Any]] = {
    "judge": judge_job,
    "profile": profile_job,
    "selftest": selftest_job,
}


@contextlib.contextmanager
def _court(
    job: Job, emit: Emit, keep: Callable[[], bool]
) -> Iterator[tuple[Task, TaskModules, Device, Launcher, Budget]]:
    """Everything that an order on this machine needs, the device held meanwhile.

    `keep`: whether in the end what the submission compiled is kept for its next run.

    The first worker is started before this process loads torch, so that both load it at once, and
    the device is waited for only then: its lock is held for no longer than it is used.
    """
    root = Path(job.task_root)
    task = tasks.load(root)
    limits = _limits(task, job)
    name = present.resolve(job.device)
    level = isolation.choose(job.isolation)
    key = cache_key(job.submission.sha256, *(f"{k}={v}" for k, v in machine.versions()))
    compiled = machine.cache_folder() / "compiled"
    with scratch_folder(key, compiled, keep) as scratch, contextlib.ExitStack() as stack:
        launcher = Launcher(
            scratch=scratch,
            task_root=root,
            source=job.submission.source,
            display=job.submission.path,
            device=name,
            level=level,
            limits=limits,
            emulate=False,
            deadline_ns=0,
            devices=present.device_nodes(name),
            arch_list=present.arch_list(name),
            visible=present.visible(name),
            beside=sources.beside(job.submission),
            still=lambda: emit(STILL),
        )
        stack.callback(launcher.close)
        launcher.spawn_ahead(1)
        emit(Progress("loading torch"))
        gc.disable()  # see environment.worker_argv
        from harness.devices import select  # loads torch: seconds

        gc.freeze()
        gc.enable()
        sys.dont_write_bytecode = True  # torch's was worth 2 s a process
        modules = tasks.load_modules(root)
        stack.enter_context(_device_to_itself(name, job.mode, emit))
        device, budget = select.device(name)
        launcher = replace(
            launcher,
            emulate=select.needs_emulation(modules, name),
            deadline_ns=time.monotonic_ns() + limits.run_ns,
        )
        yield (
            task,
            modules,
            device,
            launcher,
            with_overrides(budget, job.processes, job.budget_ns),
        )


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
def _device_to_itself(name: str, mode: Mode, emit: Emit) -> Iterator[None]:
    """Hold the device while something is timed; two timed runs at once are both wrong."""
    if mode is Mode.TEST and name == "cpu":
        yield
        return
    lock = present.visible(name) or name  # cuda:0 of one user may be cuda:1 of another
    with device_lock.hold(
        lock, waiting=lambda: emit(Progress("waiting for", f"{name}, where another run is timed"))
    ):
        yield


def _end_with_parent() -> None:
    """End in order when asked to, and at once when the command that started us is gone.

    A judge that nobody waits for would hold the device for the rest of its run.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    parent = os.getppid()
    confine.end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)  # it went before we could be told


def _take_over_stdout() -> TextIO:
    """Keep the event stream to ourselves: whatever else prints goes to standard error."""
    events = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    return events


def _write(events: TextIO, kind: str, value: Any) -> None:
    events.write(json.dumps({"event": kind, "value": value}) + "\n")
    events.flush()
