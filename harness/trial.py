"""One window, examined: the step that checking and timing have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness import verdicts
from harness.bench import Bench
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
    inputs: Sequence[Prepared],
    tolerance: Tolerance,
    modules: TaskModules,
    *,
    timed: bool,
) -> Trial | Failed:
    """Run one window and examine every output of it."""
    window = bench.window(inputs, timed=timed)
    if isinstance(window, Failed):
        return window
    found = verdicts.examine(window, inputs, tolerance, modules)
    if isinstance(found, Passed):
        return Trial(window, found)
    if found.verdict in _MAYBE_UNORDERED:
        ordered = bench.ordered(inputs)
        if isinstance(ordered, Window):
            again = verdicts.examine(ordered, inputs, tolerance, modules)
            if isinstance(again, Passed):
                return Failed(Verdict.UNORDERED, UNORDERED, found.check)
    return found
