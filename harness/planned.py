"""Whether a run checked and timed what its task asks for.  Pure.

A bundle says of itself what its cases were; the task at hand says what they had to be.
"""

from __future__ import annotations

import math
from collections import Counter

from harness.model import (
    Case,
    CaseKind,
    Check,
    Clock,
    Job,
    Passed,
    Run,
    Task,
    Timing,
    Tolerance,
    Verdict,
)
from harness.plan import plan

#: What rounding may add to a bound.
_ROUNDED = 1e-9
#: No GPU is so many times as fast as the one that a bound is published for (nvfp4_gemv: a B200).
FASTER = 20
#: What is published bounds a time, and a floor only what is moved: where arithmetic or a launch
#: decides, the floor is far below.  Computed: 190 times on an H200 for `double` (32 KB, 1.5 us), on
#: a B200 2,000 for attention to a million tokens, 70,000 for the forces among as many bodies.
BELOW = 100_000
#: Departures told of one run; one that was made up as a whole has hundreds.
_TOLD = 3


def departures(run: Run, task: Task) -> tuple[str, ...]:
    """In what a run's cases are not those of its task.

    Empty for a run of another version of the task, and for one on shapes of its own, which no
    board shows.
    """
    if run.task_digest != task.digest or run.custom_shapes:
        return ()
    if run.task != task.name:
        return (f"its task is called {task.name}, and it says {run.task}",)
    told = [*_tests(run, task), *_timed(run, task), *_checks(run, task)]
    return tuple(dict.fromkeys(told))[:_TOLD]


def _tests(run: Run, task: Task) -> list[str]:
    """Test cases that the task has not, or not as often; where all passed, also missing ones."""
    did = Counter(c.case for c in run.cases if c.case.kind is CaseKind.TEST)
    seeds = {case.seed for case in did}
    # --seed puts one in the place of all.
    todo = Counter(_tests_of(run, task, seeds.pop() if len(seeds) == 1 else None))
    told = [f"{_label(case)}: its task has no such test case" for case in did if case not in todo]
    told += [f"{_label(case)}: this test case is there too often" for case in did & todo
             if did[case] > todo[case]]  # fmt: skip
    if run.verdict is Verdict.PASSED:
        told += [f"{_label(case)}: this test case of its task is missing" for case in todo - did]
    return told


def _tests_of(run: Run, task: Task, seed: int | None) -> tuple[Case, ...]:
    return plan(task, Job(task.root, run.submission, run.device.kind, run.mode, seed=seed)).tests


def _timed(run: Run, task: Task) -> list[str]:
    """Timed shapes that the task does not rank, bounds that it does not publish, and far beyond."""
    bounds = {shape: shape.light_speed_ns for shape in task.ranked}
    told = []
    for result in run.cases:
        case, shape = result.case, result.case.shape
        if case.kind is not CaseKind.BENCHMARK:
            continue
        if case.inputs != task.timed_inputs:
            said = f"its task times {task.timed_inputs} inputs, not {case.inputs}"
            told.append(f"{shape.label}: {said}")
        elif shape not in bounds:
            told.append(f"{shape.label}: its task does not time this shape")
        elif shape.light_speed_ns != bounds[shape]:
            told.append(f"{shape.label}: the speed of light is not the one that its task publishes")
        elif result.timing is not None and run.clock is not Clock.HOST:
            told += [f"{shape.label}: {one}" for one in _beyond(result.timing, bounds[shape])]
    return told


def _beyond(timing: Timing, light_ns: int | None) -> list[str]:
    """What of a GPU's time no device can have, by the task's published bound."""
    if light_ns is None:
        return []
    told = []
    if timing.median_ns * FASTER < light_ns:
        told.append(f"it is more than {FASTER} times as fast as its task's speed of light")
    if timing.floor_ns is not None and timing.floor_ns * BELOW < light_ns:
        told.append(f"its floor is none: not a {BELOW:,}th of its task's speed of light")
    return told


def _checks(run: Run, task: Task) -> list[str]:
    """Cases that passed with an error that the tolerance does not allow."""
    return [
        f"{_label(c.case)}: it passed with an error that its task does not allow"
        for c in run.cases
        if isinstance(c.outcome, Passed) and not _allowed(c.outcome.check, task.tolerance)
    ]


def _allowed(check: Check, tolerance: Tolerance) -> bool:
    """Whether a check can have passed: of |out - ref| <= atol + rtol * |ref| what can be told.

    The maxima are of different elements, so that both may be beyond their share of the tolerance:
    an error of 50 is right in 65504, one of 1e-3 in 1e-6.  Without one share, the other bounds one.
    """
    rtol, atol, worst = tolerance.rtol, tolerance.atol, check.worst
    if (rtol == 0 and check.max_abs > atol) or (
        atol == 0 and check.max_rel > rtol * (1 + _ROUNDED)
    ):
        return False
    if worst is None:
        return True
    most = (atol + rtol * abs(worst.expected)) * (1 + _ROUNDED)
    return abs(worst.got - worst.expected) <= most < math.inf  # no NaN either


def _label(case: Case) -> str:
    return f"{case.shape.label} {case.inputs}, seed {case.seed}"
