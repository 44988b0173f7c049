"""The trusted loop: cases out, bytes in, check, audit -> Run.  Loads no code of a submission."""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Sequence

import harness
from harness import lint, stats, timing, trial, verdicts
from harness.bench import Bench
from harness.launch import Launcher
from harness.measure import Measurement
from harness.model import (
    Budget,
    Case,
    CaseResult,
    Doubt,
    Failed,
    Job,
    Mode,
    Outcome,
    Passed,
    Run,
    Task,
    Timing,
    Verdict,
    reduced_precision,
    without_floor,
)
from harness.plan import plan
from harness.prepare import COMPETITION, Preparer, Seeds
from harness.progress import Emit, Progress
from harness.task import TaskModules
from harness.window import Device, Prepared


class Judge:
    """Judges one submission, once."""

    def __init__(
        self,
        job: Job,
        task: Task,
        modules: TaskModules,
        device: Device,
        launcher: Launcher,
        budget: Budget,
        emit: Emit,
    ) -> None:
        self._job, self._task, self._modules = job, task, modules
        self._device, self._launcher, self._budget = device, launcher, budget
        self._emit = emit
        key = job.replay_key
        self._seeds = Seeds(None if key is None else bytes.fromhex(key))
        self._preparer = Preparer(task, modules, device.name)
        self._notes: list[str] = []
        self._bench = Bench(launcher, device, emit, timed=job.mode is not Mode.TEST)

    def run(self) -> Run:
        """Check, then time, and say what became of it.  HarnessError when our side fails."""
        created_ns, begin_ns = time.time_ns(), time.monotonic_ns()
        todo = plan(self._task, self._job)
        results: list[CaseResult] = []
        try:
            failure = self._bench.begin()
            if failure is None:
                results += self._test(todo.tests)
                if todo.timed and all(isinstance(r.outcome, Passed) for r in results):
                    results += self._measurement().run(todo.timed)
        finally:
            self._bench.close()
        self._device.recover()
        return self._conclude(results, failure, created_ns, time.monotonic_ns() - begin_ns)

    def _test(self, cases: Sequence[Case]) -> list[CaseResult]:
        results = []
        for done, case in enumerate(cases):
            subject = f"{case.shape.label} {case.inputs}"
            self._emit(Progress("checking", subject, done, len(cases)))
            results.append(CaseResult(case, self._test_case(case)))
        return results

    def _test_case(self, case: Case) -> Outcome:
        """Two calls on different inputs: an answer kept from the first is wrong for the second."""
        outcome: Outcome = Failed(Verdict.PROTOCOL_ERROR, "not run")
        for number, seed in enumerate((case.seed, self._seeds.draw()), start=1):
            found = trial.attempt(
                self._bench,
                functools.partial(self._inputs, case, seed, question=number == 1),
                self._task.tolerance,
                self._modules,
                timed=False,
            )
            if isinstance(found, Failed):
                what = "" if number == 1 else "second call, on new inputs: "
                return Failed(found.verdict, what + found.message, found.check)
            outcome = found.passed
        return outcome

    def _inputs(self, case: Case, seed: int, *, question: bool) -> Prepared:
        """The inputs of one call; with `question`, a note when a constant would pass on them."""
        prepared = self._preparer.prepare(case.shape, case.inputs, seed)
        if question and case.inputs == COMPETITION:
            answer = lint.trivial_answer(prepared, self._task.tolerance)
            if answer is not None:
                self._notes.append(lint.note(case.shape, answer))
        return prepared

    def _measurement(self) -> Measurement:
        return Measurement(
            self._task,
            self._modules,
            self._device,
            self._bench,
            self._preparer,
            self._seeds,
            self._budget,
            self._emit,
            observe=self._job.observe,
        )

    def _conclude(
        self,
        results: Sequence[CaseResult],
        failure: Failed | None,
        created_ns: int,
        duration_ns: int,
    ) -> Run:
        verdict, message = verdicts.overall(results, failure)
        timings = [r.timing for r in results if r.timing is not None]
        # Inputs that were public before the run prove nothing (ATTACKS F): a replay never ranks.
        custom = bool(self._job.shapes) or self._job.replay_key is not None
        score = None
        if verdict is Verdict.PASSED and timings and not custom:
            score = stats.geometric_mean([t.median_ns for t in timings])
        return Run(
            id=secrets.token_hex(6),
            task=self._task.name,
            task_digest=self._task.digest,
            mode=self._job.mode,
            verdict=verdict,
            message=message,
            created_ns=created_ns,
            duration_ns=duration_ns,
            submission=self._job.submission,
            device=self._device.describe(),
            reference=self._preparer.reference,
            isolation=self._launcher.level,
            clock=self._device.clock,
            doubts=self._doubts(results, timings),
            score_ns=score,
            cases=tuple(results),
            harness_version=harness.__version__,
            custom_shapes=custom,
            environment=self._device.environment(),
            secret_seed=self._seeds.key,
            notes=(*self._notes, *self._device.notes()),
            log=self._bench.log,
        )

    def _doubts(
        self, results: Sequence[CaseResult], timings: Sequence[Timing]
    ) -> tuple[Doubt, ...]:
        found = list(self._device.doubts())
        if self._bench.root:
            found.append(Doubt.ROOT_WORKER)
        for result in timings:
            found += timing.doubts_of(result)
        if reduced_precision(results):
            found.append(Doubt.REDUCED_PRECISION)
        if without_floor(self._device.clock, results):
            found.append(Doubt.NO_FLOOR)
        if "emulated" in self._bench.facts:
            found.append(Doubt.EMULATED)
        return tuple(dict.fromkeys(found))
