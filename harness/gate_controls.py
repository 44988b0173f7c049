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
#: than any tolerance below 1 forgives, whether it was small, large, infinite or not a number.
SPOIL = """

_right_kernel = custom_kernel


def _first_tensor(value):
    if isinstance(value, dict):
        value = list(value.values())
    return _first_tensor(value[0]) if isinstance(value, list | tuple) else value


def custom_kernel(data):
    answer = _right_kernel(data)
    tensor = _first_tensor(answer)
    index = tuple(size // 2 for size in tensor.shape)
    was = tensor[index].item()
    tensor[index] = was + 2 if abs(was) <= 1 else 0
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


def wrong_control(root: Path, right: Submission) -> Submission:
    """The task's controls/wrong.py, else the right one with one element of its output off."""
    path = root / FOLDER / "wrong.py"
    if path.is_file():
        return read_submission(path, "the gate")
    source = right.source + SPOIL
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
