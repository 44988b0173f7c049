"""Worker's side: what a call does, as torch's profiler (CUPTI) sees it.  Testimony, for people.

Kept out of timed windows: the profiler slows launches down.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

_CALL = "harness.call"
_BETWEEN = "harness.between"
#: Runtime and driver calls that make the host wait for the device.
_WAITS = ("Synchronize", "cudaMemcpy", "cuMemcpyDtoH")
#: Lines that fit into one message, over all calls.
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
    (CPU: per operator that no other one called), times from the first call's start.  Of a call with
    too many for a message, those of one name are one, "N x NAME", as long as all of them.  A chrome
    trace goes to `trace`.
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
    ran = [e for e in events if e.device_type() == wanted and e.name() not in (_CALL, _BETWEEN)]
    ran.sort(key=lambda event: (event.start_ns(), -event.duration_ns()))
    placed = [(e, _call_of(e.start_ns(), ranges, pauses)) for e in ran]
    inside = [e for e in events if any(a <= e.start_ns() < b for a, b in ranges)]
    by_call: dict[int, list[_Piece]] = {}
    for e, call in placed:
        if call is None:
            continue
        piece = _Piece(e.device_resource_id(), e.start_ns() - origin, e.duration_ns(), e.name())
        by_call.setdefault(call, []).append(piece)
    room = max(2, _MAX_KERNELS // max(1, len(by_call)))
    kernels = [
        f"{piece.stream}\t{piece.start_ns}\t{piece.duration_ns}\t{call}\t{piece.name[:160]}"
        for call, pieces in by_call.items()
        for piece in _fitting(pieces if cuda else _outermost(pieces), room)
    ]
    device = [e for e, call in placed if call is not None]
    between = [e for e, call in placed if call is None]
    return {"kernels": kernels, "facts": _facts(device, inside, between) if cuda else []}


class _Piece(NamedTuple):
    stream: int
    start_ns: int
    duration_ns: int
    name: str


def _outermost(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Without those that run within an earlier one; `pieces` are in order of their start."""
    kept: list[_Piece] = []
    end = 0
    for piece in pieces:
        if piece.start_ns >= end:
            kept.append(piece)
            end = piece.start_ns + piece.duration_ns
    return kept


def _fitting(pieces: Sequence[_Piece], room: int) -> Sequence[_Piece]:
    """At most `room` pieces of the same span and, in one stream, of the same sum.

    The one that ends last stays as it is, for the span; those of one name lie end to end.
    """
    if len(pieces) <= room:
        return pieces
    last = max(pieces, key=lambda piece: piece.start_ns + piece.duration_ns)
    groups: dict[tuple[int, str], list[int]] = {}
    for piece in pieces:
        if piece is not last:
            groups.setdefault((piece.stream, piece.name), []).append(piece.duration_ns)
    longest = sorted(groups.items(), key=lambda item: -sum(item[1]))
    merged, at = [], pieces[0].start_ns
    for (stream, name), times in longest[: room - 2]:
        label = f"{len(times)} x {name}" if len(times) > 1 else name
        merged.append(_Piece(stream, at, sum(times), label))
        at += sum(times)
    rest = [time for _, times in longest[room - 2 :] for time in times]
    if rest:
        merged.append(_Piece(last.stream, at, sum(rest), f"{len(rest)} x others"))
    return [*merged, last]


def _call_of(start_ns: int, ranges: Sequence[tuple[int, int]], pauses: Sequence[int]) -> int | None:
    """Which call a kernel belongs to: the last one that had begun, as calls are synchronised.

    None for what ran between calls.
    """
    call = sum(begin <= start_ns for begin, _ in ranges) - 1
    return call if call >= 0 and sum(begin <= start_ns for begin in pauses) - 1 == call else None


def _facts(device: Sequence[Any], inside: Sequence[Any], between: Sequence[Any]) -> list[str]:
    """`between`: what ran between the calls, which is ours, on the current stream."""
    host = [event.name() for event in inside if event.device_type() == DeviceType.CPU]
    graph = any("GraphLaunch" in name for name in host)
    streams = {event.device_resource_id() for event in device}
    current = {event.device_resource_id() for event in between}
    found = []
    # A call may have all of its work on one stream that is not the current one; a graph's kernels
    # are on streams of the driver's choice.
    if len(streams) > 1 or (current and not graph and streams - current):
        found.append("multi-stream")
    if graph:
        found.append("graph")
    if any(word in name and "Async" not in name for name in host for word in _WAITS):
        found.append("synchronises")
    return found
