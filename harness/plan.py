"""Which cases a job checks and which shapes it times: the modes of the command line."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.model import Case, CaseKind, Job, Mode, Shape, Task


@dataclass(frozen=True, slots=True)
class Plan:
    tests: tuple[Case, ...]
    timed: tuple[Shape, ...]


def plan(task: Task, job: Job) -> Plan:
    """`test` checks, `benchmark` times, `ranked` does both; --shape replaces the mode's shapes."""
    if job.shapes:
        seed = task.ranked_seed if job.seed is None else job.seed
        tests = tuple(
            Case(CaseKind.TEST, shape, inputs, seed)
            for shape in job.shapes
            for inputs in task.inputs
        )
        return Plan(tests, () if job.mode is Mode.TEST else job.shapes)
    tests = task.tests + task.hard
    if job.seed is not None:
        tests = tuple(replace(case, seed=job.seed) for case in tests)
    return Plan(
        () if job.mode is Mode.BENCHMARK else tests,
        () if job.mode is Mode.TEST else task.ranked,
    )
