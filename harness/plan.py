"""Which cases a job checks and which shapes it times: the modes of the command line."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.model import Case, CaseKind, Job, Mode, Shape, Task


@dataclass(frozen=True, slots=True)
class Plan:
    tests: tuple[Case, ...]
    timed: tuple[Shape, ...]


def plan(task: Task, job: Job) -> Plan:
    """`test` checks, `benchmark` times, `ranked` does both; --shape replaces the mode's shapes.

    What is timed is checked as well, on data of the task's `timed_inputs`.
    """
    tests = task.tests + task.hard
    if job.shapes:
        tests = tuple(
            Case(CaseKind.TEST, shape, inputs, task.ranked_seed)
            for shape in job.shapes
            for inputs in task.inputs
        )
    if job.seed is not None:
        tests = tuple(replace(case, seed=job.seed) for case in tests)
    return Plan(
        () if job.mode is Mode.BENCHMARK else tests,
        () if job.mode is Mode.TEST else job.shapes or task.ranked,
    )
