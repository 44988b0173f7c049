"""A worker that a failed call has spoilt does not judge the next case."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.bench import MAX_RESTARTS, Bench
from harness.devices.turns import Turns
from harness.errors import DeviceError
from harness.model import RUN_TOO_LONG, Failed, Limits, Verdict

SETTLED = object()


class FakeSession:
    """A worker whose every call fails, and which settles afterwards or does not."""

    def __init__(self, *, settles: bool) -> None:
        self._settles = settles
        self.usable, self.timed_out, self.detail = True, False, "the call's own traceback"
        self.confined = SimpleNamespace(root=False, log=lambda: "")

    def order(self, kind: str, **fields: Any) -> Any:
        if kind == "idle" and not self._settles:
            self.detail = "what settling said"
            return Failed(Verdict.RUNTIME_ERROR, "CUDA error: an illegal memory access")
        return SETTLED

    def close(self) -> None:
        self.usable = False


class FakeLauncher:
    limits = Limits()
    deadline_ns = 2**63

    def __init__(self, *, settles: bool) -> None:
        self.spawned: list[FakeSession] = []
        self.imports: list[Failed | None] = []
        self._settles = settles

    def spawn(self) -> FakeSession:
        self.spawned.append(FakeSession(settles=self._settles))
        return self.spawned[-1]

    def attend(self, session: FakeSession, *, again: bool = False) -> None: ...

    def bring_in(self, session: FakeSession) -> Failed | None:
        return self.imports.pop(0) if self.imports else None


def make_bench(
    verdict: Verdict, *, settles: bool, timed: bool = False
) -> tuple[Bench, FakeLauncher]:
    launcher: Any = FakeLauncher(settles=settles)
    exchange = SimpleNamespace(descriptors=list, sizes=list, close=lambda: None)
    device: Any = SimpleNamespace(
        exchange=lambda frame, slots: exchange,
        window=lambda *args, **options: Failed(verdict, "it failed"),
        calibrate=lambda session: None,
    )
    return Bench(launcher, device, lambda progress: None, timed=timed), launcher


PREPARED: Any = SimpleNamespace(frame=SimpleNamespace(to_order=lambda slots: {}))


def test_an_ordinary_failure_keeps_its_worker() -> None:
    bench, launcher = make_bench(Verdict.RUNTIME_ERROR, settles=True)
    bench.begin()
    for _ in range(MAX_RESTARTS + 2):
        assert bench.window(PREPARED, timed=False) == Failed(Verdict.RUNTIME_ERROR, "it failed")
    assert len(launcher.spawned) == 1


@pytest.mark.parametrize(
    ("verdict", "settles"), [(Verdict.RUNTIME_ERROR, False), (Verdict.OUT_OF_MEMORY, True)]
)
def test_a_spoilt_worker_is_replaced_and_the_first_failure_is_what_is_told(
    verdict: Verdict, settles: bool
) -> None:
    bench, launcher = make_bench(verdict, settles=settles)
    bench.begin()
    for _ in range(2):
        assert bench.window(PREPARED, timed=False) == Failed(verdict, "it failed")
    assert len(launcher.spawned) == 2
    assert not launcher.spawned[0].usable
    bench.end()
    assert bench.log == "the call's own traceback"


def test_a_worker_that_could_not_import_the_submission_is_never_called() -> None:
    failure = Failed(Verdict.IMPORT_ERROR, "no such file, this time")
    bench, launcher = make_bench(Verdict.WRONG_ANSWER, settles=True)
    bench.begin()
    bench.end()
    launcher.imports = [failure, None]
    assert bench.begin() == failure
    assert not launcher.spawned[1].usable
    assert bench.window(PREPARED, timed=False) == Failed(Verdict.WRONG_ANSWER, "it failed")
    assert len(launcher.spawned) == 3


def test_a_fresh_worker_that_meets_the_runs_end_while_it_is_calibrated_is_late_not_broken() -> None:
    bench, launcher = make_bench(Verdict.WRONG_ANSWER, settles=True, timed=True)

    def broken(session: Any) -> None:
        launcher.deadline_ns = 0
        raise DeviceError("the worker did not answer")

    bench.begin()
    bench._device.calibrate = broken  # type: ignore[method-assign]
    assert bench.begin() == Failed(Verdict.TIMED_OUT, RUN_TOO_LONG)


def test_a_first_worker_that_cannot_be_calibrated_is_the_machines_failure() -> None:
    bench, launcher = make_bench(Verdict.WRONG_ANSWER, settles=True, timed=True)

    def broken(session: Any) -> None:
        launcher.deadline_ns = 0
        raise DeviceError("the worker did not answer")

    bench._device.calibrate = broken  # type: ignore[method-assign]
    with pytest.raises(DeviceError):
        bench.begin()


@pytest.mark.parametrize(
    ("hangs", "verdict"), [(True, Verdict.TIMED_OUT), (False, Verdict.CRASHED)]
)
def test_a_case_that_is_not_tried_is_called_what_the_last_one_was(
    hangs: bool, verdict: Verdict
) -> None:
    bench, launcher = make_bench(Verdict.CRASHED, settles=True)
    for _ in range(MAX_RESTARTS + 1):
        found = bench.alive()
        if isinstance(found, Failed):
            break
        found.usable, found.timed_out = False, hangs
    found = bench.alive()
    assert isinstance(found, Failed) and found.verdict is verdict
    assert len(launcher.spawned) == (3 if hangs else MAX_RESTARTS + 1)


def full_after(launcher: FakeLauncher, shapes: int) -> None:
    """From now on a worker has memory for the buffers of so many shapes."""
    held: dict[int, int] = {}

    def order(session: FakeSession, kind: str, **fields: Any) -> Any:
        if kind != "map":
            return SETTLED
        held[id(session)] = held.get(id(session), 0) + 1
        full = held[id(session)] > shapes
        return Failed(Verdict.OUT_OF_MEMORY, "no room for the buffers") if full else SETTLED

    launcher.order = order  # type: ignore[attr-defined]


@pytest.mark.parametrize("shapes", [1, 2])
def test_a_worker_that_older_buffers_have_filled_gives_way_to_a_fresh_one(
    shapes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, launcher = make_bench(Verdict.WRONG_ANSWER, settles=True)
    full_after(launcher, shapes)
    monkeypatch.setattr(FakeSession, "order", launcher.order)  # type: ignore[attr-defined]
    for number in range(10):
        frame = SimpleNamespace(number=number, to_order=lambda n: {})
        prepared: Any = SimpleNamespace(frame=frame)
        found = bench.window(prepared, timed=False)
        assert found == Failed(Verdict.WRONG_ANSWER, "it failed")
    assert len(launcher.spawned) == 10 // shapes


def test_a_judge_without_memory_for_buffers_has_a_fresh_worker_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an older worker has mapped is taken, although the judge has given it back."""
    bench, launcher = make_bench(Verdict.WRONG_ANSWER, settles=True)
    real: Any = bench._device.exchange

    def exchange(frame: Any, slots: int) -> Any:
        if bench._maps:
            raise torch.cuda.OutOfMemoryError
        return real(frame, slots)

    bench._device.exchange = exchange  # type: ignore[method-assign]
    for number in range(3):
        frame = SimpleNamespace(number=number, to_order=lambda n: {})
        prepared: Any = SimpleNamespace(frame=frame)
        found = bench.window(prepared, timed=False)
        assert found == Failed(Verdict.WRONG_ANSWER, "it failed")
    assert len(launcher.spawned) == 3
    bench._device.exchange = lambda frame, slots: (_ for _ in ()).throw(  # type: ignore[method-assign]
        torch.cuda.OutOfMemoryError
    )
    with pytest.raises(torch.cuda.OutOfMemoryError):
        bench.window(PREPARED, timed=False)


def test_a_timed_call_gets_no_fresh_worker_whoever_lacks_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or a submission could have another process for each that it dislikes."""
    bench, launcher = make_bench(Verdict.WRONG_ANSWER, settles=True)
    device: Any = bench._device
    device.buffer_sets = lambda frame: 2
    full_after(launcher, 1)
    monkeypatch.setattr(FakeSession, "order", launcher.order)  # type: ignore[attr-defined]

    def window(number: int) -> Any:
        frame = SimpleNamespace(number=number, to_order=lambda n: {})
        prepared: Any = SimpleNamespace(frame=frame)
        return bench.window(prepared, timed=True)

    assert window(1) == Failed(Verdict.WRONG_ANSWER, "it failed")
    assert window(2) == Failed(Verdict.OUT_OF_MEMORY, "no room for the buffers")
    assert not bench.crowded  # that is the worker's word alone
    assert len(launcher.spawned) == 1

    bench.begin()
    window(3)
    device.exchange = lambda frame, slots: (_ for _ in ()).throw(torch.cuda.OutOfMemoryError)
    found = window(4)
    assert isinstance(found, Failed) and found.verdict is Verdict.OUT_OF_MEMORY
    assert bench.crowded
    assert len(launcher.spawned) == 2


def test_what_is_too_large_for_a_fresh_worker_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, launcher = make_bench(Verdict.WRONG_ANSWER, settles=True)
    full_after(launcher, 0)
    monkeypatch.setattr(FakeSession, "order", launcher.order)  # type: ignore[attr-defined]
    found = bench.window(PREPARED, timed=False)
    assert isinstance(found, Failed) and found.verdict is Verdict.OUT_OF_MEMORY
    assert len(launcher.spawned) == 1


@pytest.mark.parametrize(("timed", "sets"), [(True, 8), (False, 1)])
def test_timed_calls_take_turns_in_several_sets_of_buffers(timed: bool, sets: int) -> None:
    bench, _ = make_bench(Verdict.WRONG_ANSWER, settles=True)
    device: Any = bench._device
    device.buffer_sets = lambda frame: 8
    made: list[int] = []
    real = device.exchange

    def exchange(frame: Any, slots: int) -> Any:
        made.append(slots)
        return real(frame, slots)

    device.exchange = exchange
    for _ in range(2 * sets):
        bench.window(PREPARED, timed=timed)
    assert made == [sets]


def test_every_set_of_buffers_has_its_turn() -> None:
    turns = Turns(8)
    for expected in (*range(8), 0):
        assert turns.next() == expected
        assert turns.last == expected
    alone = Turns(1)
    assert [alone.next() for _ in range(3)] == [0, 0, 0]
