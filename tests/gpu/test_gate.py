"""The gate's comparison on a GPU: 3% planted is found, nothing planted raises no alarm.

One comparison of each kind, some two minutes; benchmarks/gate_power.py makes the table of many.
"""

from __future__ import annotations

import pytest

from benchmarks import gate_power
from harness import slowdown
from harness.model import Submission, Task
from harness.slowdown import Pace
from harness.task import load

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

DEVICE = "cuda:0"


@pytest.fixture(scope="module")
def task() -> Task:
    return load(gate_power.ROOT)


@pytest.fixture(scope="module")
def original() -> Submission:
    return gate_power.victim()


def test_a_planted_three_percent_is_found(task: Task, original: Submission) -> None:
    times = slowdown.times_of(gate_power.run_once(task, original, DEVICE, 1))
    base, delayed = (gate_power.delayed(original, times, share) for share in (0.0, 0.03))
    speed = gate_power.compare(task, base, delayed, DEVICE)
    slower = speed.at(Pace.SLOWER)
    assert slower, gate_power.row("3%", speed)
    # The comparison ends with the first shape that is slower: estimates are rough, intervals hold.
    assert all(s.low < 1.045 and s.high > 1.02 for s in slower), gate_power.row("3%", speed)


def test_the_same_submission_raises_no_alarm(task: Task, original: Submission) -> None:
    speed = gate_power.compare(task, original, original, DEVICE)
    assert Pace.SLOWER not in [shape.pace for shape in speed.shapes], gate_power.row("same", speed)
