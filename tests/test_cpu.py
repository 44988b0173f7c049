"""On a CPU the judge's clock starts only when a worker can begin, not before."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import tree
from harness.devices import neighbours
from harness.devices.cpu import CpuDevice, SharedBuffer
from harness.exchange import TensorSpec
from harness.model import Doubt, Failed, Verdict

NO_ANSWER = Failed(Verdict.TIMED_OUT, "no answer is wanted here")


class Watched:
    """A worker and its buffers, which write down what is done to them, in order."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        woken: int = 0,
        still: bool = True,
        grows: bool = False,
    ) -> None:
        monkeypatch.setattr(tree, "clocks", lambda members: {})
        monkeypatch.setattr(tree, "turns", self.turns)
        self.done: list[str] = []
        self._still, self._grows = still, grows
        self._woken = woken
        self.confined = self

    @contextlib.contextmanager
    def stopped(self) -> Iterator[tree.Stopped]:
        self.done.append("stopped")
        yield tree.Stopped(self.members(), self._still, self.turns(self.members()))
        self.done.append("resumed")

    def cpu_ns(self) -> int:
        return 0

    def members(self) -> tuple[int, ...]:
        return (7, *((8,) if "loaded" in self.done and self._grows else ()))

    def turns(self, members: tuple[int, ...]) -> tree.Turns:
        turns = 5 + (self._woken if "loaded" in self.done else 0)
        return {(member, member): (turns,) for member in members}

    def load(self, tensors: Any) -> None:
        self.done.append("loaded")

    def send(self, kind: str, **fields: Any) -> int:
        self.done.append("sent")
        return 1

    def expect(self, *_: Any, **__: Any) -> Failed:
        self.done.append("awaited")
        return NO_ANSWER


class Reply(dict[str, Any]):
    arrived_ns = 2**62


def timed_call(watched: Watched) -> object:
    session: Any = watched
    exchange: Any = watched
    prepared: Any = SimpleNamespace(tensors=())
    return CpuDevice().window(session, exchange, prepared, timeout_ns=1, timed=True)


def test_every_process_of_the_workers_is_stopped_while_its_inputs_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against tests/exploits/zoo/b4_resident_daemon.py and b8_work_in_the_gap.py."""
    watched = Watched(monkeypatch)
    assert timed_call(watched) is NO_ANSWER
    assert watched.done == ["stopped", "loaded", "sent", "resumed", "awaited"]


@pytest.mark.parametrize(
    ("seen", "tripped"),
    [
        ({}, False),
        ({"woken": 1}, True),
        ({"still": False}, True),
        ({"grows": True}, True),
    ],
)
def test_a_process_that_wakes_goes_on_or_was_not_there_trips_the_window(
    seen: dict[str, Any], tripped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against tests/exploits/zoo/b8_wakes_itself.py and b8_born_in_the_walk.py."""
    watched = Watched(monkeypatch, **seen)
    reply = Reply(where=[], claimed_ns=1, host_ns=1, facts=[])
    monkeypatch.setattr(watched, "expect", lambda *_, **__: reply)
    monkeypatch.setattr("harness.devices.cpu.parse_where", lambda *_: [])
    watched.__dict__.update(
        snapshot=lambda where: [], changed=lambda tensors: [], intact=lambda: True
    )
    session: Any = watched
    prepared: Any = SimpleNamespace(tensors=(), frame=None)
    window: Any = CpuDevice().window(session, session, prepared, timeout_ns=1, timed=True)
    assert window.tripped is tripped


def test_the_clock_runs_until_the_judge_has_its_copy_and_looks_at_nothing_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against tests/exploits/zoo/a5_done_among_many.py."""
    watched = Watched(monkeypatch)
    reply = Reply(where=[], claimed_ns=1, host_ns=1, facts=[])

    def expect(*_: Any, **__: Any) -> Reply:
        watched.done.append("answered")
        reply.arrived_ns = time.monotonic_ns()
        return reply

    def snapshot(where: Any) -> list[Any]:
        if "copied" not in watched.done:
            time.sleep(0.05)
        watched.done.append("copied")
        return []

    monkeypatch.setattr(watched, "expect", expect)
    monkeypatch.setattr("harness.devices.cpu.parse_where", lambda *_: [])
    monkeypatch.setattr(
        neighbours.Neighbours, "look", lambda self, worker: watched.done.append("looked")
    )
    watched.__dict__.update(snapshot=snapshot, changed=lambda tensors: [], intact=lambda: True)
    session: Any = watched
    prepared: Any = SimpleNamespace(tensors=(), frame=None)
    window: Any = CpuDevice().window(session, session, prepared, timeout_ns=1, timed=True)
    after = watched.done[watched.done.index("answered") :]
    assert after == ["answered", "copied", "looked", "copied"]
    assert window.elapsed_ns >= 50_000_000


def test_a_copy_of_a_payload_is_its_own_and_may_be_empty() -> None:
    for size in (0, 5, 70_000):
        buffer = SharedBuffer(TensorSpec("uint8", (size,), (1,), size))
        buffer.payload.fill_(7)
        copy = buffer.copy()
        buffer.payload.fill_(8)
        assert copy.tolist() == [7] * size
        buffer.close()


# Other programs


class Worker:
    """A worker that says how much processor time its tree has used."""

    def __init__(self) -> None:
        self.used_ns = 0

    def cpu_ns(self) -> int:
        return self.used_ns


def share_of_others(
    monkeypatch: pytest.MonkeyPatch, *, seconds: float, busy_s: float, own_s: float
) -> float | None:
    """What is said after a worker was timed for so long on a machine that was so busy."""
    worker, found = Worker(), neighbours.Neighbours()
    clock, busy = iter((0, round(seconds * 1e9))), iter((0, round(busy_s * 1e9)))
    monkeypatch.setattr("time.monotonic_ns", lambda: next(clock))
    monkeypatch.setattr("time.process_time_ns", lambda: 0)
    monkeypatch.setattr(neighbours, "_busy_ns", lambda: next(busy))
    found.look(worker)
    worker.used_ns = round(own_s * 1e9)
    found.look(worker)
    return found.share()


def test_what_the_worker_used_itself_is_not_held_against_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert share_of_others(monkeypatch, seconds=2, busy_s=4, own_s=4) == 0
    assert share_of_others(monkeypatch, seconds=2, busy_s=4, own_s=3) == 0.5


def test_nothing_is_said_of_a_time_too_short_for_the_kernels_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert share_of_others(monkeypatch, seconds=0.2, busy_s=0.2, own_s=0) is None
    assert neighbours.Neighbours().share() is None


def test_processor_time_of_the_whole_machine_is_read_from_the_kernel() -> None:
    before = neighbours._busy_ns()
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    assert neighbours._busy_ns() - before >= 200_000_000


def test_idle_processors_and_those_of_others_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    stat.write_text(
        "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 4 100 200 8 16 32 64 128\ncpu1 5 0 0 0 0 0 0 0 0 0\n"
        "intr 5\n"
    )
    monkeypatch.setattr(neighbours, "_STAT", stat)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")
    assert neighbours._busy_ns() == (1 + 2 + 4 + 8 + 16 + 32) * tick_ns
    monkeypatch.setattr(neighbours, "_STAT", tmp_path / "absent")
    assert neighbours._busy_ns() == 0


@pytest.mark.parametrize(("share", "doubts"), [(None, ()), (0.1, ()), (0.9, (Doubt.SHARED_CPU,))])
def test_a_time_taken_beside_other_programs_is_doubted(
    share: float | None, doubts: tuple[Doubt, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours.Neighbours, "share", lambda self: share)
    assert CpuDevice().doubts() == doubts
