"""How many worker processes a measurement takes, and how many samples of one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from harness import measure, trial
from harness.judge import Judge
from harness.measure import Measurement
from harness.model import (
    Budget,
    Case,
    CaseKind,
    CaseResult,
    Clock,
    Doubt,
    Failed,
    Job,
    Mode,
    Passed,
    Shape,
    Stop,
    Verdict,
)
from harness.prepare import Seeds
from harness.timing import CUDA_BUDGET, Estimate, StoppingRule, doubts_of, warm, with_overrides
from harness.window import Answer, Window
from tests.fakes import CPU, make_check, make_timing
from tests.sampled import sampled_run

SHAPE = Shape((("n", 8),))
BUDGET = Budget(processes=7, min_samples=30, max_samples=120, time_ns=1_000, fewest=5)


class Bench:
    """Counts the workers; of `leaves` processes the next one is gone at its import."""

    def __init__(self, leaves: int | None = None) -> None:
        self.ended = 0
        self.crowded = False
        self.ahead: list[int] = []
        self.leaves = leaves

    def end(self) -> None:
        self.ended += 1

    def alive(self) -> Failed | None:
        return GONE if self.ended == self.leaves else None

    def spawn_ahead(self, count: int) -> None:
        self.ahead.append(count)


GONE = Failed(Verdict.CRASHED, "its process ended (exit code 1) while it was imported")


def processes(
    budget: Budget, monkeypatch: pytest.MonkeyPatch, *, each_ns: int = 0, noise: float = 0.0
) -> tuple[int, Bench, Stop | None]:
    """Take a measurement whose processes last `each_ns`: how many, the bench, why it ended."""
    now, rng = [0], random.Random(1)
    monkeypatch.setattr(measure, "time", SimpleNamespace(monotonic_ns=lambda: now[0]))
    bench, seen = Bench(), list[measure._Sampling]()

    def sample(self: Any, sampling: measure._Sampling, process: int, share_ns: int) -> None:
        now[0] += each_ns
        seen.append(sampling)
        times = (1_000 * (1 + noise * rng.random()) for _ in range(budget.min_samples))
        sampling.estimates.append(Estimate(process, tuple(times)))

    monkeypatch.setattr(Measurement, "_sample", sample)
    monkeypatch.setattr(
        Measurement, "_outcome", lambda *_: Failed(Verdict.CRASHED, "not looked at")
    )
    task: Any = SimpleNamespace(ranked_seed=1, timed_inputs="needles")
    nothing: Any = None
    device: Any = SimpleNamespace(name="cuda:0", tick_ns=1.0)
    made: Any = bench
    Measurement(task, nothing, device, made, nothing, nothing, budget, nothing, observe=False).run(
        [SHAPE]
    )
    return len(seen), bench, seen[-1].stop


def test_what_seeds_are_drawn_by_names_the_axes_as_ever() -> None:
    """People are shown the label; another text here would give a replay other inputs."""
    assert str(Shape((("m", 128), ("k", 256)))) == "m=128, k=256"


def test_as_many_processes_as_planned_where_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    count, bench, stop = processes(BUDGET, monkeypatch)
    assert (count, bench.ended, stop) == (7, 6, Stop.PRECISION)


def test_no_fewer_than_the_fewest_when_each_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    count, _, _ = processes(BUDGET, monkeypatch, each_ns=900)
    assert count == 5


def test_between_the_two_the_time_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    count, _, _ = processes(BUDGET, monkeypatch, each_ns=170)
    assert count == 6


def test_no_more_than_planned_however_wide_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    count, _, stop = processes(BUDGET, monkeypatch, noise=0.5)
    assert (count, stop) == (7, Stop.SAMPLES)
    count, _, stop = processes(BUDGET, monkeypatch, each_ns=170, noise=0.5)
    assert (count, stop) == (6, Stop.BUDGET)


def test_none_loads_that_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_SPARE_CORES", 4)
    _, bench, _ = processes(BUDGET, monkeypatch)
    assert bench.ahead == [4, 4, 4, 3, 2, 1, 0]


def test_the_user_has_exactly_the_processes_that_were_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for wanted in (1, 3, 9):
        for each_ns in (0, 900):
            asked = with_overrides(CUDA_BUDGET, wanted, 1_000)
            count, _, _ = processes(asked, monkeypatch, each_ns=each_ns, noise=0.5)
            assert count == wanted


@pytest.mark.parametrize("also", [None, Verdict.WRONG_ANSWER])
def test_what_is_wrong_is_not_said_to_be_right_with_less_precision(also: Verdict | None) -> None:
    case = Case(CaseKind.TEST, SHAPE, "competition", 1)
    rough = replace(make_check(), strict_mismatches=3)
    results = [CaseResult(case, Passed(rough))]
    if also is not None:
        results.append(CaseResult(case, Failed(also, "all of it")))
    judge: Any = SimpleNamespace(
        _device=SimpleNamespace(doubts=tuple, clock=Clock.HOST),
        _bench=SimpleNamespace(root=False, facts=set()),
    )
    said = Judge._doubts(judge, results, [])
    assert said == ((Doubt.REDUCED_PRECISION,) if also is None else ())


@pytest.mark.parametrize(
    ("clock", "floor", "said"),
    [
        (Clock.WORKER, None, (Doubt.NO_FLOOR,)),
        (Clock.WORKER, 0.6, ()),
        (Clock.HOST, None, ()),
    ],
)
def test_a_time_that_was_held_against_no_floor_says_so_on_a_gpu(
    clock: Clock, floor: float | None, said: tuple[Doubt, ...]
) -> None:
    """README had the doubt, and no run ever did."""
    judge: Any = SimpleNamespace(
        _device=SimpleNamespace(doubts=tuple, clock=clock),
        _bench=SimpleNamespace(root=False, facts=set()),
    )
    assert Judge._doubts(judge, sampled_run(clock=clock, floor=floor).cases, []) == said


@pytest.mark.parametrize(
    ("changes", "scored"),
    [({}, True), ({"replay_key": "0" * 32}, False), ({"shapes": (SHAPE,)}, False)],
)
def test_inputs_that_were_known_beforehand_or_chosen_give_no_score(
    changes: dict[str, Any], scored: bool
) -> None:
    """Whoever may make a run again with its revealed seeds knows what it will be asked."""
    timed = sampled_run().cases[-1:]
    job = Job("/task", sampled_run().submission, "cpu", Mode.RANKED, **changes)
    device = SimpleNamespace(
        describe=lambda: CPU, clock=Clock.HOST, environment=tuple, doubts=tuple, notes=tuple
    )
    judge: Any = SimpleNamespace(
        _task=SimpleNamespace(name="double", digest="0" * 64),
        _job=job,
        _device=device,
        _preparer=SimpleNamespace(reference=None),
        _launcher=SimpleNamespace(level=None),
        _bench=SimpleNamespace(log=""),
        _seeds=SimpleNamespace(key="0" * 32),
        _notes=[],
        _doubts=lambda results, timings: (),
    )
    run = Judge._conclude(judge, timed, None, 1, 1)
    assert (run.score_ns is not None) is scored and run.custom_shapes is not scored


FALLING = [12_000.0 - 100 * i for i in range(10)]  # by 4% between the groups


@pytest.mark.parametrize(
    ("seen", "jitter_ns", "done"),
    [
        ([12_000.0] * 9, 0.0, False),  # two groups are not there yet
        ([12_000.0] * 10, 0.0, True),
        (FALLING, 0.0, False),
        (FALLING, 300.0, False),
        (FALLING, 600.0, True),  # the clock knows no better
        (FALLING * 6, 0.0, True),  # enough is enough
    ],
)
def test_warm_up_ends_when_the_time_stands_still_as_far_as_the_clock_can_tell(
    seen: list[float], jitter_ns: float, done: bool
) -> None:
    assert warm(seen, 10, 60, jitter_ns=jitter_ns) is done


def test_a_shapes_inputs_depend_on_no_other_shape_so_that_a_replay_has_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Shapes come in another random order in every process."""
    monkeypatch.setattr(Measurement, "_warm_up", lambda *_: Failed(Verdict.CRASHED, "enough"))
    key = bytes(range(16))
    drawn = []
    for others in (0, 3):
        nothing: Any = None
        seeds = Seeds(key)
        made = Measurement(
            nothing, nothing, nothing, nothing, nothing, seeds, BUDGET, nothing, observe=False
        )
        for _ in range(others):
            seeds.draw()
        sampling = measure._Sampling(SHAPE, seeds)
        made._sample(sampling, 2, 1)
        drawn.append([sampling.seeds.draw() for _ in range(3)])
    assert drawn[0] == drawn[1] and len(set(drawn[0])) == 3


def stopped(
    budget: Budget, values: Sequence[float], *, spent_ns: int = 0
) -> tuple[int, Stop | None]:
    """How many samples of one process are taken, and why no more."""
    rule = StoppingRule(budget)
    for count, value in enumerate(values, start=1):
        rule.add(value)
        if (why := rule.stop(spent_ns, 1_000)) is not None:
            return count, why
    return len(values), None


def test_one_process_is_sampled_until_it_is_precise_or_the_time_or_the_number_is_used_up() -> None:
    one = replace(BUDGET, processes=1)
    noisy = [1_000.0 * (1 + 0.5 * random.Random(i).random()) for i in range(200)]
    assert stopped(one, [1_000.0] * 200) == (30, Stop.PRECISION)
    assert stopped(one, noisy) == (120, Stop.SAMPLES)
    assert stopped(one, noisy, spent_ns=1_000) == (30, Stop.BUDGET)
    assert stopped(one, noisy[:29], spent_ns=1_000) == (29, None)
    # Looked at with 30, 60 and 120 samples: what is precise in between ends nothing.
    assert stopped(one, noisy[:30] + [1_000.0] * 170) == (120, Stop.PRECISION)
    assert stopped(BUDGET, noisy) == (30, Stop.SAMPLES)  # other processes say more


def test_no_more_time_is_asked_for_where_it_would_not_help() -> None:
    """Half a minute of an H200 gives some 0.7%; who wants less has other things to mend first."""
    for noise, doubts in (
        (0.002, ()),
        (0.012, (Doubt.BUDGET,)),
        (0.03, (Doubt.NOISY, Doubt.BUDGET)),
    ):
        timing = replace(make_timing(20_000.0, noise=noise), stop=Stop.BUDGET)
        assert doubts_of(timing) == doubts, noise


def test_windows_that_were_examined_keep_no_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU all of a run's samples would keep theirs in device memory."""
    window = Window(1_000, 1, 1, Answer((), (), True), tripped=False, late=False)
    passed = SimpleNamespace(window=window, passed=Passed(make_check()))
    monkeypatch.setattr(trial, "attempt", lambda *_, **__: passed)
    nothing: Any = SimpleNamespace(tolerance=None)
    made = Measurement(
        nothing, nothing, nothing, nothing, nothing, nothing, BUDGET, nothing, observe=False
    )
    kept: Any = made._checked(measure._Sampling(SHAPE, Seeds()), "a call")
    assert kept.answer is None and kept.elapsed_ns == 1_000


def test_every_timed_call_gets_the_tasks_timed_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against tests/exploits/zoo/h4_only_when_timed.py."""
    asked: list[str] = []

    class Asked:
        def prepare(self, shape: Shape, inputs: str, seed: int) -> None:
            asked.append(inputs)

    task: Any = SimpleNamespace(ranked_seed=1, timed_inputs="needles")
    nothing: Any = None
    asking: Any = Asked()
    made = Measurement(
        task, nothing, nothing, nothing, asking, nothing, BUDGET, nothing, observe=False
    )
    made._fresh(SHAPE, Seeds(b"key"))
    assert asked == ["needles"]


@pytest.mark.parametrize(("again", "verdict"), [(500.0, Verdict.PASSED), (1_000.0, "implausible")])
def test_who_is_faster_than_the_device_reads_is_accused_by_a_fresh_measurement_alone(
    again: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was kept may be from a moment at which strangers were at work."""
    bench, floors = Bench(), [1_000.0]

    def sample(self: Any, sampling: measure._Sampling, process: int, share_ns: int) -> None:
        sampling.estimates.append(Estimate(process, (600.0,) * 30))
        sampling.check = make_check()

    def measure_floor() -> None:
        assert bench.ended == BUDGET.fewest, "while a worker lives it can slow the read down"
        floors[0] = again

    monkeypatch.setattr(Measurement, "_sample", sample)
    task: Any = SimpleNamespace(ranked_seed=1, timed_inputs="needles")
    modules: Any = SimpleNamespace(compulsory_bytes=lambda n: n)
    device: Any = SimpleNamespace(
        name="cuda:0", tick_ns=1.0, floor_ns=lambda count: floors[0], measure_floor=measure_floor
    )
    nothing: Any = None
    made: Any = bench
    (result,) = Measurement(
        task, modules, device, made, nothing, nothing, BUDGET, nothing, observe=False
    ).run([SHAPE])
    assert result.verdict == verdict


def test_a_process_that_leaves_before_it_is_timed_is_replaced_by_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who may leave the processes that are slow picks those that count."""
    bench = Bench(leaves=2)

    def sample(self: Any, sampling: measure._Sampling, process: int, share_ns: int) -> None:
        sampling.estimates.append(Estimate(process, (600.0,) * 30))

    monkeypatch.setattr(Measurement, "_sample", sample)
    task: Any = SimpleNamespace(ranked_seed=1, timed_inputs="needles")
    device: Any = SimpleNamespace(name="cuda:0", tick_ns=1.0)
    nothing: Any = None
    made: Any = bench
    results = Measurement(
        task, nothing, device, made, nothing, nothing, BUDGET, nothing, observe=False
    ).run([SHAPE, Shape((("n", 16),))])
    assert [result.outcome for result in results] == [GONE, GONE]
    assert bench.ended == 2


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [(("multi-stream",), Verdict.UNORDERED), (("graph",), Verdict.TAMPERED), ((), "tampered")],
)
@pytest.mark.parametrize("observe", [True, False])  # run; gate and compare
def test_a_second_stream_that_nobody_waits_for_is_a_mistake_and_no_forgery(
    facts: tuple[str, ...], verdict: str, observe: bool
) -> None:
    refuted = Failed(Verdict.TAMPERED, "0.03 us a call")
    bench = SimpleNamespace(observe=lambda inputs: SimpleNamespace(facts=facts))
    found = _finished(bench, refuted, observe=observe)
    assert found is not None and found.verdict == verdict
    assert found.message.startswith("0.03 us a call")


@pytest.mark.parametrize("usable", [True, False])
def test_a_worker_that_ends_while_it_is_observed_fails_and_a_profiler_that_fails_says_nothing(
    usable: bool,
) -> None:
    """Another worker would have the next shape, three times a run."""
    bench = SimpleNamespace(observe=lambda inputs: GONE, usable=usable)
    sound = SimpleNamespace(estimate=Estimate(0, (600.0,)), blocks=(), classes=())
    assert _finished(bench, sound, observe=True) == (None if usable else GONE)


def _finished(bench: Any, audited: Any, *, observe: bool) -> Failed | None:
    """What the end of a first process comes to, whose audit says `audited`."""
    device: Any = SimpleNamespace(name="cuda:0", audit=lambda process, windows: audited)
    preparer: Any = SimpleNamespace(prepare=lambda *_: None)
    task: Any = SimpleNamespace(timed_inputs="needles")
    nothing: Any = None
    made = Measurement(
        task, nothing, device, bench, preparer, Seeds(b"key"), BUDGET, nothing, observe=observe
    )
    window = Window(1_000, 1, 1, Answer((), (), True), tripped=False, late=False)
    return made._finish(measure._Sampling(SHAPE, Seeds(b"key")), 0, [window])


FULL = Failed(Verdict.OUT_OF_MEMORY, "no device memory is left for the buffers")


@pytest.mark.parametrize(
    ("full_in", "workers"),
    [
        (None, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]),
        # The second shape of the first process found no room: from then on each has its own worker.
        (0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
    ],
)
def test_what_the_first_process_finds_of_the_memory_holds_for_all(
    full_in: int | None, workers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed, results = _in_workers(full_in, monkeypatch)
    assert timed == workers
    assert all(isinstance(result.outcome, Passed) for result in results)


def test_a_process_that_fills_the_memory_later_is_replaced_by_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against tests/exploits/zoo/h2_no_memory_for_buffers.py, with real memory."""
    _, results = _in_workers(1, monkeypatch)
    assert FULL in [result.outcome for result in results]


def _in_workers(
    full_in: int | None, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[int], list[CaseResult]]:
    """The worker of each sampling, of two shapes; in that process no second shape has room."""
    bench, timed, shapes = Bench(), list[int](), dict[int, int]()

    def sample(
        self: Any, sampling: measure._Sampling, process: int, share_ns: int
    ) -> Failed | None:
        worker = bench.ended + 1
        shapes[worker] = shapes.get(worker, 0) + 1
        bench.crowded = process == full_in and shapes[worker] > 1
        if bench.crowded:
            return FULL
        timed.append(worker)
        sampling.check = make_check()
        sampling.estimates.append(Estimate(process, (600.0,) * 30))
        return None

    monkeypatch.setattr(Measurement, "_sample", sample)
    task: Any = SimpleNamespace(ranked_seed=1, timed_inputs="needles")
    modules: Any = SimpleNamespace(compulsory_bytes=None)
    device: Any = SimpleNamespace(name="cuda:0", tick_ns=1.0)
    nothing: Any = None
    made: Any = bench
    results = Measurement(
        task, modules, device, made, nothing, nothing, BUDGET, nothing, observe=False
    ).run([SHAPE, Shape((("n", 16),))])
    return timed, results
