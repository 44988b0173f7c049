"""Time the ranked shapes: fresh inputs for every call, every output checked, several processes."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from harness import stats, timing, trial, verdicts
from harness.bench import Bench
from harness.errors import DeviceError
from harness.model import (
    Block,
    Budget,
    Case,
    CaseKind,
    CaseResult,
    Check,
    Failed,
    Outcome,
    Passed,
    Shape,
    Stop,
    Task,
    Verdict,
)
from harness.prepare import Preparer, Seeds
from harness.progress import Emit, Progress
from harness.task import TaskModules
from harness.window import Device, Prepared, Window, waits

#: Windows in which somebody else used the device; more than this share of them is no accident.
MAX_TRIPPED_SHARE = 0.2
MIN_TRIPPED = 3

#: Loading torch takes a core for some seconds; timing needs the others.
_SPARE_CORES = max(1, min(4, (os.cpu_count() or 1) // 4))


@dataclass(slots=True)
class _Sampling:
    """What has been measured of one shape so far, over all worker processes."""

    shape: Shape
    seeds: Seeds  # of the present process
    blocks: list[Block] = field(default_factory=list)
    estimates: list[timing.Estimate] = field(default_factory=list)
    check: Check | None = None
    stop: Stop = Stop.SAMPLES
    facts: list[str] = field(default_factory=list)
    failed: Failed | None = None


class Measurement:
    """Times one submission on several shapes."""

    def __init__(
        self,
        task: Task,
        modules: TaskModules,
        device: Device,
        bench: Bench,
        preparer: Preparer,
        seeds: Seeds,
        budget: Budget,
        emit: Emit,
        *,
        observe: bool,
    ) -> None:
        self._task, self._modules = task, modules
        self._device, self._bench = device, bench
        self._preparer, self._seeds = preparer, seeds
        self._budget, self._emit = budget, emit
        self._observe = observe
        self._apart = False  # one worker cannot hold the buffers of all shapes: each has its own

    def run(self, shapes: Sequence[Shape]) -> list[CaseResult]:
        """Time every shape in several fresh processes, in another order in each."""
        samplings = [_Sampling(s, self._seeds) for s in shapes]
        begin_ns = time.monotonic_ns()
        process = 0
        while not self._enough(process, samplings, time.monotonic_ns() - begin_ns):
            live = [s for s in samplings if s.failed is None]
            if process > 0 and (gone := self._another_worker()):
                # Another one instead, and a submission could leave the processes it dislikes.
                for sampling in live:
                    sampling.failed = gone
                break
            left = self._budget.processes - process - 1
            self._bench.spawn_ahead(min(left, _SPARE_CORES))
            random.SystemRandom().shuffle(live)
            for position, sampling in enumerate(live):
                left_ns = self._budget.time_ns - (time.monotonic_ns() - begin_ns)
                share_ns = max(0, left_ns) // (len(live) - position)
                fresh = position == 0
                sampling.failed = self._in_its_worker(sampling, process, share_ns, fresh=fresh)
                self._refuse_disturbed(sampling.failed)
            process += 1
        outcomes = [self._outcome(s) for s in samplings]
        if any(isinstance(o, Failed) and o.verdict is Verdict.IMPLAUSIBLE for o in outcomes):
            # The bandwidth may be what is wrong: a stranger was at work when it was measured.
            self._bench.end()
            self._device.measure_floor()
            outcomes = [self._outcome(s) for s in samplings]
        seed, inputs = self._task.ranked_seed, self._task.timed_inputs
        cases = (Case(CaseKind.BENCHMARK, s.shape, inputs, seed) for s in samplings)
        return [CaseResult(case, outcome) for case, outcome in zip(cases, outcomes, strict=True)]

    def _in_its_worker(
        self, sampling: _Sampling, process: int, share_ns: int, *, fresh: bool
    ) -> Failed | None:
        """`_sample` in the process's worker, or in one of the shape's own where memory asks for it.

        That is found out in the first process and holds for all: a worker that fills the memory
        in a later one has spoilt the run, and no other takes its place.
        """
        if self._apart and not fresh and (gone := self._another_worker()):
            return gone
        failed = self._sample(sampling, process, share_ns)
        if failed is None or not self._bench.crowded or process > 0 or self._apart:
            return failed
        self._apart = True
        return self._another_worker() or self._sample(sampling, process, share_ns)

    def _another_worker(self) -> Failed | None:
        self._bench.end()
        gone = self._bench.alive()
        return gone if isinstance(gone, Failed) else None

    def _refuse_disturbed(self, failed: Failed | None) -> None:
        """Blame nobody for what a stranger may have delayed.  Raises DeviceError."""
        if failed is not None and failed.verdict in (Verdict.TAMPERED, Verdict.UNORDERED):
            stranger = self._device.disturbance()
            if stranger is not None:
                raise DeviceError(f"{self._device.name}: {stranger}; nothing was measured")

    def _enough(self, process: int, samplings: Sequence[_Sampling], spent_ns: int) -> bool:
        """Whether no further worker process is wanted."""
        live = [s for s in samplings if s.failed is None]
        if not live:
            return True
        if process < self._budget.fewest:
            return False
        if self._budget.processes == 1:
            return True
        late = spent_ns >= self._budget.time_ns
        for sampling in live:
            wide = Stop.BUDGET if late else Stop.SAMPLES
            sampling.stop = Stop.PRECISION if self._narrow(sampling) else wide
        return late or process >= self._budget.processes

    def _narrow(self, sampling: _Sampling) -> bool:
        """Whether the interval that would be published is as narrow as the budget asks."""
        blocks = [estimate.samples_ns for estimate in sampling.estimates]
        interval = stats.process_interval(blocks, tick=self._device.tick_ns)
        return stats.half_width(interval) <= self._budget.precision

    def _sample(self, sampling: _Sampling, process: int, share_ns: int) -> Failed | None:
        """Warm up, then take the samples of one shape in the present worker."""
        # Shapes come in another order in a replay: each has its own inputs all the same.
        sampling.seeds = self._seeds.stream(f"{sampling.shape} in process {process}")
        failure = self._warm_up(sampling)
        if failure is not None:
            return failure
        rule = timing.StoppingRule(self._budget)
        begin_ns, windows, tripped = time.monotonic_ns(), list[Window](), 0
        stop: Stop | None = None
        while stop is None:
            spent_ns = time.monotonic_ns() - begin_ns
            self._report(sampling, process, windows, share_ns - spent_ns)
            window = self._checked(sampling, f"timed call {len(windows) + 1}")
            if isinstance(window, Failed):
                return window
            if window.tripped:
                tripped += 1
                if tripped > max(MIN_TRIPPED, MAX_TRIPPED_SHARE * (len(windows) + tripped)):
                    return Failed(Verdict.TAMPERED, _early(tripped, len(windows) + tripped))
                continue
            windows.append(window)
            rule.add(self._device.net_ns(window))
            stop = rule.stop(time.monotonic_ns() - begin_ns, share_ns)
        sampling.stop = stop
        return self._finish(sampling, process, windows)

    def _finish(
        self, sampling: _Sampling, process: int, windows: Sequence[Window]
    ) -> Failed | None:
        """Ask once what kind of calls these are, and have the device audit the process."""
        if waits(windows):
            sampling.facts.append("synchronises")
        if process == 0 and self._observe:
            seen = self._seen(sampling)
            if isinstance(seen, Failed):
                return seen
            sampling.facts.extend(seen)
        audited = self._device.audit(process, windows)
        if isinstance(audited, Failed):
            return _called(audited, lambda: self._seen(sampling))
        sampling.estimates.append(audited.estimate)
        sampling.blocks.extend(audited.blocks)
        sampling.facts.extend(audited.classes)
        return None

    def _seen(self, sampling: _Sampling) -> tuple[str, ...] | Failed:
        """What kind of calls these are by the worker's own profiler; nothing on a CPU.

        A profiler that fails says nothing.  A worker that ends meanwhile fails: another one would
        take its place for the next shape (tests/test_measure.py).
        """
        if self._device.name == "cpu":
            return ()
        seen = self._bench.observe(self._fresh(sampling.shape, self._seeds.stream("seen")))
        if isinstance(seen, Failed):
            return () if self._bench.usable else seen
        return seen.facts

    def _warm_up(self, sampling: _Sampling) -> Failed | None:
        """Checked, untimed windows in the measured regime until the time stands still."""
        seen: list[float] = []
        least, most = self._device.warm_up
        while not timing.warm(seen, least, most, jitter_ns=self._device.jitter_ns):
            self._emit(Progress("warming up", sampling.shape.label, len(seen)))
            window = self._checked(sampling, f"warm-up call {len(seen) + 1}")
            if isinstance(window, Failed):
                return window
            seen.append(self._device.net_ns(window))
        return None

    def _checked(self, sampling: _Sampling, what: str) -> Window | Failed:
        """One window on inputs that nobody has seen, every output checked."""
        found = trial.attempt(
            self._bench,
            lambda: self._fresh(sampling.shape, sampling.seeds),
            self._task.tolerance,
            self._modules,
            timed=True,
        )
        if isinstance(found, Failed):
            return Failed(found.verdict, f"{what}: {found.message}", found.check)
        sampling.check = verdicts.worse(sampling.check, found.passed.check)
        return replace(found.window, answer=None)  # examined: all of them would fill a device

    def _fresh(self, shape: Shape, seeds: Seeds) -> Prepared:
        """Inputs that nobody has seen."""
        return self._preparer.prepare(shape, self._task.timed_inputs, seeds.draw())

    def _outcome(self, sampling: _Sampling) -> Outcome:
        if sampling.failed is not None:
            return sampling.failed
        count = self._modules.compulsory_bytes
        floor_ns = None
        if count is not None:
            floor_ns = self._device.floor_ns(count(**dict(sampling.shape.axes)))
        result = timing.summarise(
            sampling.estimates,
            sampling.blocks,
            stop=sampling.stop,
            floor_ns=floor_ns,
            classes=sampling.facts,
            tick_ns=self._device.tick_ns,
        )
        if floor_ns is not None and result.median_ns < floor_ns * timing.FLOOR_SHARE:
            return Failed(
                Verdict.IMPLAUSIBLE,
                f"{result.median_ns / 1e3:.2f} us is less than this device needs to read the "
                f"inputs once ({floor_ns / 1e3:.2f} us)",
                sampling.check,
            )
        assert sampling.check is not None
        return Passed(sampling.check, result)

    def _report(
        self, sampling: _Sampling, process: int, windows: Sequence[Window], left_ns: int
    ) -> None:
        self._emit(
            Progress(
                "timing",
                sampling.shape.label,
                len(windows),
                self._budget.max_samples,
                process=process + 1,
                processes=self._budget.processes,
                latest_ns=windows[-1].elapsed_ns if windows else None,
                left_ns=max(0, left_ns),
            )
        )


def _called(audited: Failed, seen: Callable[[], Sequence[str] | Failed]) -> Failed:
    """What to call a claim that the judge's clock refutes; `seen` asks the worker's profiler.

    Where work goes on beside the stream that the call's events are on, an honest program claims too
    little as well.  The worker itself says so, which gives a forger a milder word and no time.
    """
    facts = seen() if audited.verdict is Verdict.TAMPERED else ()
    if isinstance(facts, Failed) or "multi-stream" not in facts:
        return audited
    return Failed(
        Verdict.UNORDERED,
        f"{audited.message}: its second stream goes on after the call; "
        "have the current stream wait for it",
        audited.check,
    )


def _early(tripped: int, windows: int) -> str:
    return (
        f"in {tripped} of {windows} windows the device was at work before the clock started: its "
        "inputs were used before the call"
    )
