"""Carries a gate out: controls, then each submission that no kept verdict covers, then speed.

Knows nothing of screens and reports: submissions in, a GateReport out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness import gate, gate_controls, slowdown
from harness.baseline import Baseline
from harness.errors import HarnessError, UsageError
from harness.gate import Control, Finding, Gap, GateReport, State
from harness.model import IsolationPolicy, Job, Mode, Run, Shape, Submission, Task
from harness.plan import plan
from harness.slowdown import Absent, Speed
from harness.task import FILE
from harness.verdict_cache import VerdictCache, verdict_key

#: A job and what to call it on the screen -> its Run; raises HarnessError.
JudgeOne = Callable[[Job, str], Run]


@dataclass(frozen=True, slots=True)
class Conditions:
    """How a gate judges, and what it lets through."""

    device: str = "auto"
    isolation: IsolationPolicy = IsolationPolicy.AUTO
    timeout_ns: int | None = None
    allowed: tuple[Gap, ...] = ()
    strict: bool = False  # whether an ambiguous time fails
    max_percent: float = 2.0
    speed_budget_ns: int = 600_000_000_000  # for each submission


class Gatekeeper:
    """One gate.  `warn` gets what does not change a verdict, a line at a time."""

    def __init__(
        self,
        task: Task,
        conditions: Conditions,
        judge: JudgeOne,
        *,
        cache: VerdictCache | None = None,
        facts: Sequence[tuple[str, str]] = (),
        baseline: Baseline | None = None,
        warn: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._task, self._conditions, self._judge = task, conditions, judge
        self._cache, self._facts, self._baseline = cache, facts, baseline
        self._warn = warn
        self._device = conditions.device
        self._right: set[str] = set()  # paths of those that passed every case

    def run(
        self,
        right: Submission,
        submissions: Sequence[Submission],
        unchanged: Sequence[str] = (),
    ) -> GateReport:
        """Judge them all; a Ctrl-C leaves the rest not judged.

        Raises UsageError for a task, a device or a baseline that cannot be meant, and HarnessError
        where the baseline cannot be read.
        """
        begin_ns = time.monotonic_ns()
        proof: list[Control] = []
        findings: list[Finding] = []
        interrupted = False
        try:
            bases = self._other_sides(submissions)
            kept = {s.path: run for s in submissions if (run := self._kept(s)) is not None}
            if self._baseline is not None or any(s.path not in kept for s in submissions):
                proof += self._prove(right)
            if all(control.ok for control in proof):
                for number, submission in enumerate(submissions, start=1):
                    label = f"{submission.name} ({number}/{len(submissions)})"
                    path = submission.path
                    findings.append(self._one(submission, kept.get(path), bases.get(path), label))
        except KeyboardInterrupt:
            interrupted = True
            findings += [self._unreached(s) for s in submissions[len(findings) :]]
        return GateReport(
            task=self._task.name,
            device=self._device,
            findings=tuple(findings),
            controls=tuple(proof),
            unchanged=tuple(unchanged),
            allowed=self._conditions.allowed,
            duration_ns=time.monotonic_ns() - begin_ns,
            interrupted=interrupted,
        )

    def _other_sides(self, submissions: Sequence[Submission]) -> dict[str, Submission]:
        """What each submission is compared with, by its path; those that have nothing lack."""
        if self._baseline is None:
            return {}
        found = ((s.path, self._baseline.of(s)) for s in submissions)
        return {path: base for path, base in found if base is not None}

    def _kept(self, submission: Submission) -> Run | None:
        if self._cache is None:
            return None
        return self._cache.get(self._key(self._job(submission)), submission, self._task)

    def _prove(self, right: Submission) -> tuple[Control, ...]:
        """The right control must pass and the wrong one fail, or nobody is judged."""
        shapes = (gate_controls.smallest_shape(self._task),)
        wrong = gate_controls.wrong_control(self._task, right)
        found: list[Control] = []
        for name, submission in (("right", right), ("wrong", wrong)):
            job = replace(self._job(submission), shapes=shapes)
            try:
                run = self._judge(job, f"{name} control")
            except UsageError:
                raise
            except HarnessError as error:
                return (*found, Control(name, "not judged", False, f"{name} control: {error}"))
            self._device = run.device.name
            found.append(gate.control_finding(name, run))
            if not found[-1].ok:
                break
        return tuple(found)

    def _one(
        self, submission: Submission, kept: Run | None, base: Submission | None, label: str
    ) -> Finding:
        job = self._job(submission)
        try:
            run = self._judge(job, label) if kept is None else kept
            if kept is None:
                self._keep(self._key(job), run)
            finding = gate.conclude(
                submission,
                run,
                plan(self._task, job).tests,
                cached=kept is not None,
                allowed=self._conditions.allowed,
            )
            self._device = run.device.name
            if self._baseline is None or finding.state is not State.VERIFIED:
                return finding
            self._right.add(submission.path)
            return gate.with_speed(
                finding,
                self._speed(submission, self._baseline, base, label),
                strict=self._conditions.strict,
                allowed=self._conditions.allowed,
            )
        except UsageError:
            raise
        except HarnessError as error:
            # The others may still be judged; the exit code says that this was not their fault.
            return Finding(submission, State.BROKEN, str(error))

    def _unreached(self, submission: Submission) -> Finding:
        message = "interrupted before it was judged to the end"
        if submission.path in self._right:
            message = "it passed every case; interrupted while its time was compared"
        return Finding(submission, State.BROKEN, message)

    def _speed(
        self, submission: Submission, baseline: Baseline, base: Submission | None, label: str
    ) -> Speed:
        most, name = self._conditions.max_percent, baseline.label
        if base is None:
            return Speed(name, most, message=f"{name} does not hold it", absent=Absent.ENTRY)
        if baseline.taskless:
            said = f"{name} has no {FILE} here, so what it ranked is not known"
            return Speed(name, most, message=said, absent=Absent.ENTRY)
        if lost := baseline.lost_shapes(self._task):
            said = (
                f"{name} ranks {len(lost)} shapes that are not measured now, first {lost[0].label}"
            )
            return Speed(name, most, message=said)
        sides, ranked = {"base": base, "head": submission}, self._task.ranked
        begin_ns = time.monotonic_ns()
        timed = {"base": 0, "head": 0}

        def left_ns() -> int:
            return self._conditions.speed_budget_ns - (time.monotonic_ns() - begin_ns)

        def measure(side: str, processes: int, shapes: tuple[Shape, ...]) -> Run:
            # The least number of samples in every process: further processes say more than further
            # samples of one.
            job = replace(
                self._job(sides[side]),
                mode=Mode.BENCHMARK,
                shapes=shapes,
                processes=processes,
                budget_ns=1,
            )
            some = len(shapes) < len(ranked)
            where = f" on {len(shapes)} of {len(ranked)} shapes" if some else ""
            pairs = f"{min(timed.values())} of at most {slowdown.MOST_PAIRS} pairs"
            left = f"{left_ns() / 1e9:.0f} s left" if left_ns() > 0 else "over its --budget"
            timed[side] += processes
            return self._judge(job, f"{label}, speed of {side}{where}; {pairs}, {left}")

        return slowdown.compare(
            measure,
            ranked,
            baseline=name,
            max_percent=most,
            time_left=lambda: left_ns() > 0,
        )

    def _job(self, submission: Submission) -> Job:
        """Every test case of the task, as `--mode test` does."""
        return Job(
            task_root=self._task.root,
            submission=submission,
            device=self._conditions.device,
            mode=Mode.TEST,
            timeout_ns=self._conditions.timeout_ns,
            isolation=self._conditions.isolation,
        )

    def _key(self, job: Job) -> str:
        return verdict_key(job, self._task, self._facts)

    def _keep(self, key: str, run: Run) -> None:
        if self._cache is None:
            return
        try:
            self._cache.put(key, run)
        except OSError as error:
            self._warn(
                f"{self._cache.folder}: verdicts cannot be kept ({error.strerror}); "
                "they stand, and are found again next time"
            )
            self._cache = None
