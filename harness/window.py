"""One window: what goes in, and what the judge saw come out.  Shared by judge and devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from harness.exchange import TensorSpec, spec_to_json
from harness.model import Block, Clock, DeviceInfo, Doubt, Failed
from harness.session import Session
from harness.timing import Estimate


@dataclass(frozen=True, slots=True)
class Frame:
    """How `data` and the result of one shape are laid out; equal frames can share buffers."""

    tree: Any
    inputs: tuple[TensorSpec, ...]
    result_tree: Any
    outputs: tuple[TensorSpec, ...]
    writable: tuple[int, ...]  # inputs that a submission may write, and answer in

    def to_order(self, slots: int) -> dict[str, Any]:
        """The fields of a `map` order."""
        return {
            "tree": self.tree,
            "inputs": [spec_to_json(spec) for spec in self.inputs],
            "result_tree": self.result_tree,
            "outputs": [spec_to_json(spec) for spec in self.outputs],
            "writable": list(self.writable),
            "slots": slots,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """One call's private inputs and the truth about them.  Never lies in a shared allocation."""

    frame: Frame
    data: Any
    tensors: tuple[torch.Tensor, ...]
    expected: tuple[torch.Tensor, ...]
    terms: torch.Tensor | None  # sum of |terms| of each output, float64
    exact: torch.Tensor | None  # before rounding, float64
    slack: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """One call's outputs as the judge copied them, and what became of the buffers around."""

    outputs: tuple[torch.Tensor, ...]
    changed: tuple[int, ...]  # inputs that should not have been written, and were
    intact: bool  # guard bands


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """One call, and the judge's clock around it."""

    elapsed_ns: int  # the judge's clock, calibrated overhead not yet removed
    claimed_ns: int  # testimony
    host_ns: int  # testimony
    answer: Answer | None
    tripped: bool  # somebody used the device while it should have been the judge's
    late: bool  # an output changed after the worker had said it was done
    facts: tuple[str, ...] = ()
    waited: bool = False  # the call was not queued whole when the gate opened: host time is in it
    flush_ns: int = 0  # what the judge's own flush took, a measure of who else was there


def waits(windows: Sequence[Window]) -> bool:
    """Whether the submission waits inside its calls; one or two may allocate or load a module.

    At half already: of so many the median lies between those that waited and those that did not.
    """
    return 0 < len(windows) <= 2 * sum(window.waited for window in windows)


class Exchange(Protocol):
    """The shared buffers of one shape."""

    def descriptors(self) -> list[int]: ...

    def sizes(self) -> list[int]:
        """Bytes of each allocation behind `descriptors`."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Activity:
    """One kernel or copy on the device (CPU: one operator); times from the first call's start."""

    stream: int
    start_ns: int
    duration_ns: int
    call: int
    name: str


@dataclass(frozen=True, slots=True)
class Observation:
    """A profiler's view from inside the worker: testimony, for people and for class labels."""

    activities: tuple[Activity, ...]
    facts: tuple[str, ...]

    @classmethod
    def parse(cls, kernels: Sequence[str], facts: Sequence[str]) -> Observation:
        """Read what a worker sent; lines that do not fit are left out."""
        known = [fact for fact in facts if fact in CLASSES]
        return cls(tuple(a for a in map(_activity, kernels) if a is not None), tuple(known))


#: The profiler of a fresh process takes seconds to start.
OBSERVE_NS = 60_000_000_000
#: Labels that a profiler can find.
CLASSES = ("multi-stream", "graph", "synchronises")


def _activity(line: str) -> Activity | None:
    parts = line.split("\t", 4)
    numbers = parts[:4]
    if len(parts) != 5 or not all(n.isascii() and n.isdigit() and len(n) < 19 for n in numbers):
        return None
    stream, start_ns, duration_ns, call = map(int, numbers)
    return Activity(stream, start_ns, duration_ns, call, parts[4])


@dataclass(frozen=True, slots=True)
class Audited:
    """What one process's windows amount to, once testimony and the judge's clock agree."""

    estimate: Estimate
    blocks: tuple[Block, ...]
    classes: tuple[str, ...] = ()


class Device(Protocol):
    """What the judge needs of a device."""

    @property
    def name(self) -> str:
        """As torch names it, `cpu` or `cuda:0`."""

    @property
    def clock(self) -> Clock: ...

    @property
    def tick_ns(self) -> float:
        """The clock's step."""

    @property
    def warm_up(self) -> tuple[int, int]:
        """The least and the most windows before samples count."""

    def describe(self) -> DeviceInfo: ...

    def environment(self) -> tuple[tuple[str, str], ...]: ...

    def doubts(self) -> tuple[Doubt, ...]: ...

    def notes(self) -> tuple[str, ...]: ...

    def calibrate(self, session: Session) -> None:
        """Learn what a window costs by itself; before the submission is imported."""

    def exchange(self, frame: Frame, slots: int) -> Exchange: ...

    def buffer_sets(self, frame: Frame) -> int:
        """How many sets of buffers timed calls of one shape should take turns in."""

    def window(
        self,
        session: Session,
        exchange: Any,
        prepared: Prepared,
        *,
        timeout_ns: int,
        timed: bool,
    ) -> Window | Failed: ...

    def ordered(
        self, session: Session, exchange: Any, prepared: Prepared, *, timeout_ns: int
    ) -> Window | Failed | None:
        """The same call with its inputs there beforehand; None where that could change nothing."""

    def observe(
        self,
        session: Session,
        exchange: Any,
        prepared: Prepared,
        *,
        repeats: int,
        trace: str,
    ) -> Observation | Failed:
        """What the submission's call does, as its worker's profiler sees it."""

    def net_ns(self, window: Window) -> float:
        """What is left of a window when what it costs by itself is taken off; at least 1."""

    @property
    def jitter_ns(self) -> float:
        """By how much two windows of the same work may differ for the clock's own reasons."""

    def audit(self, process: int, windows: Sequence[Window]) -> Audited | Failed:
        """What one process's windows are worth."""

    def disturbance(self) -> str | None:
        """Who else uses the device now, besides judge and worker, or None."""

    def recover(self) -> None:
        """Called once the workers are gone: see that they left nothing behind on the device."""

    def floor_ns(self, compulsory_bytes: int) -> float | None:
        """The least time in which this device can read so many bytes, or None if unknown."""

    def measure_floor(self) -> None:
        """Read again, while no worker lives; a faster read than is known lowers the floor."""


class Unbracketed:
    """What devices have in common on which no clock of the judge's runs: no bracket, no floor."""

    jitter_ns = 0.0

    def calibrate(self, session: Session) -> None:
        """Nothing to learn: no bracket on the device."""

    def buffer_sets(self, frame: Frame) -> int:
        """One: what is shared is copied from, or is host memory."""
        return 1

    def net_ns(self, window: Window) -> float:
        """All of it: the message to the worker and back is no constant that could be taken off."""
        return max(1.0, float(window.elapsed_ns))

    def ordered(
        self, session: Session, exchange: Any, prepared: Prepared, *, timeout_ns: int
    ) -> Window | Failed | None:
        """None: every call has its inputs before it starts."""
        return None

    def floor_ns(self, compulsory_bytes: int) -> float | None:
        """Unknown: caches or copies make a bandwidth bound meaningless there."""
        return None

    def measure_floor(self) -> None:
        """Nothing to measure."""


def observed(session: Session, *, repeats: int, trace: str, body: str = "") -> Observation | Failed:
    """Have the worker run its profiler over calls on what is in the exchange's first set."""
    seen = session.order(
        "observe", timeout_ns=OBSERVE_NS, slot=0, repeats=repeats, trace=trace, body=body
    )
    return seen if isinstance(seen, Failed) else Observation.parse(seen["kernels"], seen["facts"])


def parse_where(words: Sequence[str], frame: Frame) -> list[tuple[str, int]] | None:
    """Check where the worker says its outputs lie: one place each, and only permitted ones."""
    permitted = {f"input:{i}": ("input", i) for i in frame.writable}
    permitted |= {f"output:{i}": ("output", i) for i in range(len(frame.outputs))}
    if len(words) != len(frame.outputs) or any(word not in permitted for word in words):
        return None
    places = [permitted[word] for word in words]
    specs = [frame.inputs[i] if kind == "input" else frame.outputs[i] for kind, i in places]
    fits = all(
        (a.shape, a.dtype) == (b.shape, b.dtype) for a, b in zip(specs, frame.outputs, strict=True)
    )
    return places if fits else None
