"""On a CPU the judge's clock starts only when a worker can begin, not before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from harness.devices.cpu import BUSY_FLOOR_NS, CpuDevice
from harness.model import Failed, Verdict

NO_ANSWER = Failed(Verdict.TIMED_OUT, "no answer is wanted here")


class Watched:
    """A worker and its buffers, which write down what is done to them, in order."""

    def __init__(self, *, busy_ns: int = 0) -> None:
        self.done: list[str] = []
        self._spent_ns, self._busy_ns = 0, busy_ns
        self.confined = self

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        self.done.append("stopped")
        yield
        self.done.append("resumed")

    def cpu_ns(self) -> int:
        if "loaded" in self.done:
            self._spent_ns = self._busy_ns
        return self._spent_ns

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
    inputs: Any = [SimpleNamespace(tensors=())]
    return CpuDevice().window(session, exchange, inputs, timeout_ns=1, timed=True)


def test_every_process_of_the_workers_is_stopped_while_its_inputs_are_written() -> None:
    """Against tests/exploits/zoo/b4_resident_daemon.py and b8_work_in_the_gap.py."""
    watched = Watched()
    assert timed_call(watched) is NO_ANSWER
    assert watched.done == ["stopped", "loaded", "sent", "resumed", "awaited"]


@pytest.mark.parametrize(("busy_ns", "tripped"), [(0, False), (BUSY_FLOOR_NS + 1, True)])
def test_processor_time_used_meanwhile_trips_the_window(
    busy_ns: int, tripped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(busy_ns=busy_ns)
    reply = Reply(where=[], claimed_ns=1, host_ns=1, facts=[])
    monkeypatch.setattr(watched, "expect", lambda *_, **__: reply)
    monkeypatch.setattr("harness.devices.cpu.parse_where", lambda *_: [])
    watched.__dict__.update(
        snapshot=lambda where: [], changed=lambda tensors: [], intact=lambda: True
    )
    session: Any = watched
    inputs: Any = [SimpleNamespace(tensors=(), frame=None)]
    window: Any = CpuDevice().window(session, session, inputs, timeout_ns=1, timed=True)
    assert window.tripped is tripped
