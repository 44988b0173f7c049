"""How many worker processes a measurement takes, and how many it has loading meanwhile."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from harness import measure
from harness.measure import Measurement
from harness.model import Budget, Failed, Shape, Stop, Verdict
from harness.timing import CUDA_BUDGET, with_overrides

SHAPE = Shape((("n", 8),))
BUDGET = Budget(processes=7, min_samples=30, max_samples=120, time_ns=1_000, fewest=5)


class Bench:
    """Counts the workers."""

    def __init__(self) -> None:
        self.ended = 0
        self.ahead: list[int] = []

    def end(self) -> None:
        self.ended += 1

    def alive(self) -> None: ...

    def spawn_ahead(self, count: int) -> None:
        self.ahead.append(count)


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
        for _ in range(budget.min_samples):
            sampling.rule.add(process, 1_000 * (1 + noise * rng.random()))

    monkeypatch.setattr(Measurement, "_sample", sample)
    monkeypatch.setattr(
        Measurement, "_outcome", lambda *_: Failed(Verdict.CRASHED, "not looked at")
    )
    task: Any = SimpleNamespace(ranked_seed=1)
    nothing: Any = None
    device: Any = SimpleNamespace(name="cuda:0")
    made: Any = bench
    Measurement(task, nothing, device, made, nothing, nothing, budget, nothing, observe=False).run(
        [SHAPE]
    )
    return len(seen), bench, seen[-1].stop


def test_as_many_processes_as_planned_where_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    count, bench, stop = processes(BUDGET, monkeypatch)
    assert (count, bench.ended, stop) == (7, 6, Stop.PRECISION)


def test_no_fewer_than_the_fewest_when_each_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    count, _, _ = processes(BUDGET, monkeypatch, each_ns=900)
    assert count == 5


def test_between_the_two_the_time_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    count, _, _ = processes(BUDGET, monkeypatch, each_ns=170)
    assert count == 6


def test_more_than_planned_until_it_is_precise_or_the_time_is_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count, bench, stop = processes(BUDGET, monkeypatch, each_ns=100, noise=0.5)
    assert (count, stop) == (10, Stop.BUDGET)
    assert bench.ahead[7:] == [1, 1, 1]  # one at a time, since each may be the last


def test_none_loads_that_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_SPARE_CORES", 4)
    _, bench, _ = processes(BUDGET, monkeypatch)
    assert bench.ahead == [4, 4, 4, 3, 2, 1, 0]


def test_the_user_has_exactly_the_processes_that_were_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for wanted in (1, 3, 9):
        asked = with_overrides(CUDA_BUDGET, wanted, 1_000)
        count, _, _ = processes(asked, monkeypatch, each_ns=900)
        assert count == wanted
