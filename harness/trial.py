"""One window, examined: the step that checking and timing have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from harness import verdicts
from harness.bench import Bench
from harness.errors import DeviceError
from harness.model import Failed, Passed, Tolerance, Verdict
from harness.task import TaskModules
from harness.window import Prepared, Window

#: Failures that an unordered stream can be the cause of.
_MAYBE_UNORDERED = (Verdict.WRONG_ANSWER, Verdict.NONFINITE, Verdict.TAMPERED)
UNORDERED = (
    "right only when its inputs are there long before the call: it works on a stream that is not "
    "ordered with the current one; call side.wait_stream(torch.cuda.current_stream()) before that "
    "work and torch.cuda.current_stream().wait_stream(side) after it"
)


@dataclass(frozen=True, slots=True)
class Trial:
    """A passed window and what its check found."""

    window: Window
    passed: Passed


def attempt(
    bench: Bench,
    prepare: Callable[[], Prepared],
    tolerance: Tolerance,
    modules: TaskModules,
    *,
    timed: bool,
) -> Trial | Failed:
    """Prepare inputs, run one window on them, and examine its outputs.

    A worker that leaves the judge no device memory fails; DeviceError when there is too little
    without it, too.
    """
    try:
        return _attempt(bench, prepare(), tolerance, modules, timed=timed)
    except torch.cuda.OutOfMemoryError:
        bench.end()
        torch.cuda.empty_cache()
    try:
        prepare()
    except torch.cuda.OutOfMemoryError:
        raise DeviceError("the device has too little memory for this shape") from None
    return Failed(Verdict.OUT_OF_MEMORY, "it left no device memory for its own check")


def _attempt(
    bench: Bench,
    prepared: Prepared,
    tolerance: Tolerance,
    modules: TaskModules,
    *,
    timed: bool,
) -> Trial | Failed:
    window = bench.window(prepared, timed=timed)
    if isinstance(window, Failed):
        return window
    found = verdicts.examine(window, prepared, tolerance, modules)
    if isinstance(found, Passed):
        return Trial(window, found)
    if found.verdict in _MAYBE_UNORDERED:
        ordered = bench.ordered(prepared)
        if isinstance(ordered, Window):
            again = verdicts.examine(ordered, prepared, tolerance, modules)
            if isinstance(again, Passed):
                return Failed(Verdict.UNORDERED, UNORDERED, found.check)
    return found
