"""What a task's own data cannot tell apart: answers that need no kernel and pass all the same.

judge.py asks once for each test case and puts what is found in the run's notes.
"""

from __future__ import annotations

import torch

from harness import check
from harness.model import Passed, Shape, Tolerance
from harness.window import Prepared

#: Dtypes that have a mean of their own; of others, packed ones say, only zero bytes are tried.
_NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def trivial_answer(prepared: Prepared, tolerance: Tolerance) -> str | None:
    """Name a constant that passes in the expected output's place; None when none does.

    Softmax over 100,000 columns under an atol of 1e-2 passes with zeros: no verdict of such a task
    means anything.
    """
    for name, scale in (("zeros", 0.0), ("the mean of what is expected", 1.0)):
        guesses = [_constant(expected, scale) for expected in prepared.expected]
        found = check.examine_all(
            guesses,
            prepared.expected,
            terms=None,
            tolerance=tolerance,
            slack=None,
        )
        if isinstance(found, Passed):
            return name
    return None


def note(shape: Shape, answer: str) -> str:
    """One line for the run's reader, who may be the task's author."""
    return (
        f"{shape.label}: {answer} would pass in a result's place, so a pass here says little: the "
        "task needs other inputs or a tighter tolerance"
    )


def _constant(expected: torch.Tensor, scale: float) -> torch.Tensor:
    """A tensor like `expected`, all of it `scale` times the mean of its finite elements."""
    if expected.dtype not in _NUMBERS:
        zeros = torch.zeros_like(expected.contiguous().view(torch.uint8))
        return zeros.view(expected.dtype)
    numbers = expected.double()
    finite = numbers[numbers.isfinite()]
    value = scale * float(finite.mean()) if scale and finite.numel() else 0.0
    return torch.full_like(expected, value)
