"""Worker's side: what a call does, as torch's profiler (CUPTI) sees it.  Testimony, for people.

Kept out of timed windows: the profiler slows launches down.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

_CALL = "harness.call"
_BETWEEN = "harness.between"
#: Runtime and driver calls that make the host wait for the device.
_WAITS = ("Synchronize", "cudaMemcpy", "cuMemcpyDtoH")
_MAX_KERNELS = 200


def calls(
    kernel: Callable[[Any], Any],
    data: Sequence[Any],
    trace: str,
    *,
    cuda: bool,
    before: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Run one call per item of `data` and list what ran on the device.

    `kernels` holds "stream<TAB>start_ns<TAB>duration_ns<TAB>call<TAB>name" per device activity
    (CPU: per operator), times from the first call's start.  A chrome trace goes to `trace`.
    """
    kernel(data[0])  # lazy modules and first-call compilation would otherwise be in the picture
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
    with profile(activities=activities) as profiler:
        for item in data:
            with record_function(_BETWEEN):
                if before is not None:
                    before()
                    torch.cuda.synchronize()
            with record_function(_CALL):
                kernel(item)
            if cuda:
                torch.cuda.synchronize()
    if trace:
        with contextlib.suppress(OSError, RuntimeError):
            profiler.export_chrome_trace(trace)
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
    return _digest(profiler.profiler.kineto_results.events(), cuda)


def _digest(events: Sequence[Any], cuda: bool) -> dict[str, Any]:
    marks = [e for e in events if e.device_type() == DeviceType.CPU]
    ranges = sorted((e.start_ns(), e.end_ns()) for e in marks if e.name() == _CALL)
    pauses = sorted(e.start_ns() for e in marks if e.name() == _BETWEEN)
    origin = min((start for start, _ in ranges), default=0)
    wanted = DeviceType.CUDA if cuda else DeviceType.CPU
    device = [
        e
        for e in events
        if e.device_type() == wanted
        and e.name() not in (_CALL, _BETWEEN)
        and _call_of(e.start_ns(), ranges, pauses) is not None
    ]
    inside = [e for e in events if any(a <= e.start_ns() < b for a, b in ranges)]
    device.sort(key=lambda event: event.start_ns())
    kernels = [
        f"{e.device_resource_id()}\t{e.start_ns() - origin}\t{e.duration_ns()}\t"
        f"{_call_of(e.start_ns(), ranges, pauses)}\t{e.name()[:160]}"
        for e in device[:_MAX_KERNELS]
    ]
    return {"kernels": kernels, "facts": _facts(device, inside) if cuda else []}


def _call_of(start_ns: int, ranges: Sequence[tuple[int, int]], pauses: Sequence[int]) -> int | None:
    """Which call a kernel belongs to: the last one that had begun, as calls are synchronised.

    None for what ran between calls.
    """
    call = sum(begin <= start_ns for begin, _ in ranges) - 1
    return call if call >= 0 and sum(begin <= start_ns for begin in pauses) - 1 == call else None


def _facts(device: Sequence[Any], inside: Sequence[Any]) -> list[str]:
    host = [event.name() for event in inside if event.device_type() == DeviceType.CPU]
    found = []
    if len({event.device_resource_id() for event in device}) > 1:
        found.append("multi-stream")
    if any("GraphLaunch" in name for name in host):
        found.append("graph")
    if any(word in name and "Async" not in name for name in host for word in _WAITS):
        found.append("synchronises")
    return found
