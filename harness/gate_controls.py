"""The two submissions whose verdicts are known: the gate judges them before anybody else."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from harness.errors import UsageError
from harness.model import Case, Shape, Submission, Task
from harness.sources import read_submission

FOLDER = "controls"

#: Appended to the right control: everything it does, then one element in the middle off by more
#: than twice what the task's tolerance forgives, since the right one may be off the other way.
SPOIL = """

_right_kernel = custom_kernel


def _first_tensor(value):
    if isinstance(value, dict):
        value = list(value.values())
    return _first_tensor(value[0]) if isinstance(value, list | tuple) else value


def _wrong(was):
    if isinstance(was, bool):
        return not was
    # Never below zero and never far above a small number, so that it fits any type; what is
    # infinite or not a number becomes one.
    off = 4 * ({atol!r} + {rtol!r} * abs(was)) + 2
    return was + off if abs(was) <= off < float("inf") else 0


def custom_kernel(data):
    answer = _right_kernel(data)
    tensor = _first_tensor(answer)
    index = tuple(size // 2 for size in tensor.shape)
    tensor[index] = _wrong(tensor[index].item())
    return answer
"""


def right_control(root: Path) -> Submission:
    """The task's controls/right.py.  Raises UsageError when there is none."""
    path = root / FOLDER / "right.py"
    if not path.is_file():
        raise UsageError(
            f"{path}: there is no such file; the gate proves itself on a submission known to be "
            "right before it judges others: put one there (small and plain is best)"
        )
    return read_submission(path, "the gate")


def wrong_control(task: Task, right: Submission) -> Submission:
    """The task's controls/wrong.py, else the right one with one element of its output off."""
    path = Path(task.root) / FOLDER / "wrong.py"
    if path.is_file():
        return read_submission(path, "the gate")
    source = right.source + SPOIL.format(rtol=task.tolerance.rtol, atol=task.tolerance.atol)
    return replace(
        right,
        name="wrong",
        path=f"{right.path} with one element off",
        sha256=hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest(),
        source=source,
    )


def digest(root: Path) -> str:
    """sha256 over the controls: a verdict that others proved is no verdict that these prove."""
    total = hashlib.sha256(SPOIL.encode())
    for path in sorted((root / FOLDER).glob("*.py")):
        total.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        total.update(path.read_bytes())
    return total.hexdigest()


def smallest_shape(task: Task) -> Shape:
    """The test shape of the fewest elements: a control proves the comparison, not the device."""

    def volume(case: Case) -> int:
        total = 1
        for _, size in case.shape.axes:
            total *= size
        return total

    return min(task.tests + task.hard, key=volume).shape
