"""What a submission's calls do on each ranked shape: kernels, times, bytes, share of the roofline.

On a CPU operators stand for kernels, and a thread for a stream.

Testimony of the worker's profiler, for the submission's own author; nothing here is ranked.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from harness import stats, trial
from harness.bench import Bench
from harness.model import Failed, Shape, Task
from harness.prepare import COMPETITION, Preparer, Seeds
from harness.profile_values import KernelLine, ProfileReport, ShapeProfile
from harness.progress import Emit, Progress
from harness.task import TaskModules
from harness.window import Activity, Device, Observation, Prepared

REPEATS = 5
#: A chrome trace of a few calls is well below this; a worker could write anything there.
MAX_TRACE_BYTES = 64 << 20


def profile(
    task: Task,
    modules: TaskModules,
    device: Device,
    bench: Bench,
    shapes: Sequence[Shape],
    folders: tuple[Path, Path],
    emit: Emit,
) -> ProfileReport:
    """Profile each shape; `folders` are the worker's scratch and where traces go.

    Ends with `failed` when the submission is wrong: a fast wrong kernel is not worth a look.
    """
    preparer, seeds = Preparer(task, modules, device.name), Seeds()
    failure = bench.begin()
    if failure is not None:
        return ProfileReport(device.describe(), (), failure)
    found: list[ShapeProfile] = []
    for number, shape in enumerate(shapes):
        emit(Progress("profiling", shape.label, number, len(shapes)))
        prepared = preparer.prepare(shape, COMPETITION, seeds.draw())
        raw = folders[0] / "tmp" / f"trace-{number}.json"
        seen = _seen(bench, prepared, task, modules, raw)
        if isinstance(seen, Failed):
            return ProfileReport(device.describe(), tuple(found), seen)
        trace = _keep(raw, folders[1] / f"{shape.label}.json")
        found.append(_shape_profile(shape, seen, device, modules, trace))
    return ProfileReport(device.describe(), tuple(found))


def _seen(
    bench: Bench, prepared: Prepared, task: Task, modules: TaskModules, raw: Path
) -> Observation | Failed:
    """Check one call, then profile some on the same inputs; the trace goes to `raw`."""
    checked = trial.attempt(bench, lambda: prepared, task.tolerance, modules, timed=False)
    if isinstance(checked, Failed):
        return checked
    return bench.observe(prepared, repeats=REPEATS, trace=str(raw))


def _shape_profile(
    shape: Shape, seen: Observation, device: Device, modules: TaskModules, trace: str | None
) -> ShapeProfile:
    calls: dict[int, list[Activity]] = {}
    for activity in seen.activities:
        calls.setdefault(activity.call, []).append(activity)
    # The first call may still compile or allocate.
    later = [calls[number] for number in sorted(calls)][1:] or list(calls.values())
    count = modules.compulsory_bytes
    size = None if count is None else count(**dict(shape.axes))
    return ShapeProfile(
        shape=shape,
        span_ns=stats.median([_span_ns(call) for call in later]) if later else 0.0,
        busy_ns=stats.median([_busy_ns(call) for call in later]) if later else 0.0,
        kernels=_lines(later),
        compulsory_bytes=size,
        floor_ns=None if size is None else device.floor_ns(size),
        classes=seen.facts,
        trace=trace,
    )


def _span_ns(call: Sequence[Activity]) -> float:
    return float(max(a.start_ns + a.duration_ns for a in call) - min(a.start_ns for a in call))


def _busy_ns(call: Sequence[Activity]) -> float:
    """The union of the kernels' intervals: overlap counts once."""
    busy, end = 0, 0
    for activity in sorted(call, key=lambda a: a.start_ns):
        start = max(end, activity.start_ns)
        end = max(end, activity.start_ns + activity.duration_ns)
        busy += max(0, end - start)
    return float(busy)


def _lines(calls: Sequence[Sequence[Activity]]) -> tuple[KernelLine, ...]:
    """Kernels of a call in order of what they take, longest first."""
    groups: dict[tuple[str, int], list[int]] = {}
    for activity in (a for call in calls for a in call):
        groups.setdefault((activity.name, activity.stream), []).append(activity.duration_ns)
    lines = [
        KernelLine(name, stream, len(times) / len(calls), stats.median([float(t) for t in times]))
        for (name, stream), times in groups.items()
    ]
    return tuple(sorted(lines, key=lambda line: -line.per_call * line.median_ns))


def _keep(raw: Path, kept: Path) -> str | None:
    """Copy a trace out of the scratch folder: a plain file of bounded size, or nothing."""
    try:
        if raw.is_symlink() or not raw.is_file() or raw.stat().st_size > MAX_TRACE_BYTES:
            return None
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(raw, kept, follow_symlinks=False)
    except OSError:
        return None
    return str(kept)
