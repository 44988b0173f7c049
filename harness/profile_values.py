"""What a profile holds; values only, so that the command line can show it without torch."""

from __future__ import annotations

from dataclasses import dataclass

from harness.model import DeviceInfo, Failed, Shape


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One kernel of a call: how often it ran, and its median duration."""

    name: str
    stream: int
    per_call: float
    median_ns: float


@dataclass(frozen=True, slots=True)
class ShapeProfile:
    """One shape: its kernels, and the span from the first one's start to the last one's end."""

    shape: Shape
    span_ns: float
    busy_ns: float  # time in which at least one kernel ran
    kernels: tuple[KernelLine, ...]
    compulsory_bytes: int | None
    floor_ns: float | None
    classes: tuple[str, ...]
    trace: str | None  # path of the chrome trace, where one could be written


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """The shapes that could be profiled, and why the next one could not."""

    device: DeviceInfo
    shapes: tuple[ShapeProfile, ...]
    failed: Failed | None = None
