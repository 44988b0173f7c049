"""The judge's view of one worker process: orders out, checked replies or a Failed value back."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from harness import tree, wire
from harness.model import RUN_TOO_LONG, Failed, Verdict
from harness.sandbox import Confined

#: What a worker may say of itself.  Anything worse, or better, is the judge's to find.
_CLAIMABLE = frozenset(
    {
        Verdict.IMPORT_ERROR,
        Verdict.COMPILE_ERROR,
        Verdict.WRONG_TYPE,
        Verdict.WRONG_SHAPE,
        Verdict.WRONG_DTYPE,
        Verdict.RUNTIME_ERROR,
        Verdict.OUT_OF_MEMORY,
        Verdict.CRASHED,
        Verdict.UNSUPPORTED,
    }
)
#: How often a waiting judge looks at the worker's memory.
_WATCH_NS = 250_000_000
#: How often a waiting judge says that it lives; less than the time after which it seems to hang.
_STILL_NS = 60_000_000_000
#: How long a worker whose channel has closed may take to be seen dead.
_LAST_BREATH_NS = 500_000_000


#: What a worker answers to an order; "ready" to every other.
_REPLIES = {"start": "hello", "call": "done", "observe": "observed"}


class _Breach(Exception):
    """The worker's tree is over one of its limits."""


class Session:
    """One worker.  After `usable` turns False only `close` may be called."""

    def __init__(
        self,
        confined: Confined,
        channel: wire.Channel,
        deadline_ns: int,
        still: Callable[[], None] = lambda: None,
    ) -> None:
        """`still` is called once a minute while the worker is waited for."""
        self._confined = confined
        self._still = still
        self._oom_kills = tree.oom_kills()
        self._channel = channel
        self.deadline_ns = deadline_ns  # of the whole run, monotonic
        self._seq = 0
        self._sent_ns = 0
        self.usable = True
        self.timed_out = False
        self.detail = ""  # the last fault's traceback: text of the worker's

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def confined(self) -> Confined:
        return self._confined

    def send(self, kind: str, *, descriptors: Sequence[int] = (), **fields: Any) -> int:
        """Send an order and return its sequence number; a dead worker is found by `expect`."""
        self._seq += 1
        self._sent_ns = time.monotonic_ns()
        with contextlib.suppress(wire.Closed):
            self._channel.send(kind, descriptors=descriptors, seq=self._seq, **fields)
        return self._seq

    def order(
        self, kind: str, *, timeout_ns: int, descriptors: Sequence[int] = (), **fields: Any
    ) -> wire.Message | Failed:
        """Send an order and wait until it has been carried out."""
        reply = _REPLIES.get(kind, "ready")
        seq = self.send(kind, descriptors=descriptors, **fields)
        return self.expect(reply, seq, timeout_ns, what=kind)

    def expect(self, kind: str, seq: int, timeout_ns: int, *, what: str) -> wire.Message | Failed:
        """Wait for one reply of `kind` to order `seq`."""
        until_ns = min(time.monotonic_ns() + timeout_ns, self.deadline_ns)
        try:
            message = self._receive(until_ns)
        except wire.Silence:
            late = time.monotonic_ns() >= self.deadline_ns
            return self._end(Verdict.TIMED_OUT, _too_slow(what, timeout_ns, late))
        except wire.Closed:
            return self._closed(what)
        except wire.ProtocolError as error:
            return self._end(Verdict.PROTOCOL_ERROR, f"the worker process sent {error}")
        except _Breach as breach:
            memory = str(breach).startswith("host memory")
            verdict = Verdict.OUT_OF_MEMORY if memory else Verdict.RUNTIME_ERROR
            return self._end(verdict, f"{breach}, {_during(what)}")
        return self._settle(message, kind, seq)

    def peek(self, kind: str, seq: int, timeout_ns: int) -> wire.Message | Failed | None:
        """Like `expect`, but silence until then is an answer too: None."""
        try:
            message = self._channel.receive(timeout_ns)
        except wire.Silence:
            return None
        except wire.Closed:
            return self._closed("call")
        except wire.ProtocolError as error:
            return self._end(Verdict.PROTOCOL_ERROR, f"the worker process sent {error}")
        return self._settle(message, kind, seq)

    def finish(self, seq: int, timeout_ns: int, *, queued: bool) -> wire.Message | Failed:
        """Wait for `done`, and before it for `queued` where that has not come yet."""
        if not queued:
            first = self.expect("queued", seq, timeout_ns, what="call")
            if isinstance(first, Failed):
                return first
        return self.expect("done", seq, timeout_ns, what="call")

    def _settle(self, message: wire.Message, kind: str, seq: int) -> wire.Message | Failed:
        if message.fields.get("seq", seq) != seq or message.kind not in (kind, "fault"):
            return self._end(
                Verdict.PROTOCOL_ERROR, f"the worker process sent {message.kind!r} out of turn"
            )
        # Or its run would hold what a bundle may not (bundle.problems).
        passed_ns = time.monotonic_ns() - self._sent_ns
        if message.kind == "done" and message["host_ns"] > passed_ns:
            return self._end(Verdict.TAMPERED, "it reported more time than had passed")
        return self._fault(message) if message.kind == "fault" else message

    def _receive(self, until_ns: int) -> wire.Message:
        said_ns = time.monotonic_ns()
        while True:
            now_ns = time.monotonic_ns()
            left_ns = until_ns - now_ns
            if now_ns - said_ns > _STILL_NS:
                said_ns = now_ns
                self._still()
            try:
                return self._channel.receive(max(0, min(left_ns, _WATCH_NS)))
            except wire.Silence:
                if left_ns <= _WATCH_NS:
                    raise
            breach = self._confined.breach()
            if breach is not None:
                raise _Breach(breach)

    def _fault(self, message: wire.Message) -> Failed:
        try:
            verdict = Verdict(message["verdict"])
        except ValueError:
            verdict = Verdict.PROTOCOL_ERROR
        if verdict not in _CLAIMABLE:
            return self._end(Verdict.PROTOCOL_ERROR, "the worker process gave itself a verdict")
        self.detail = message["detail"]
        return Failed(verdict, message["message"])

    def _closed(self, what: str) -> Failed:
        """The channel is gone; an exit code proves nothing, least of all 0."""
        until_ns = time.monotonic_ns() + _LAST_BREATH_NS
        ended = self._confined.poll()
        while ended is None and time.monotonic_ns() < until_ns:
            time.sleep(0.005)
            ended = self._confined.poll()
        how = f"ended ({ended})" if ended else "closed its channel"
        if ended == f"signal {signal.SIGKILL.name}" and tree.oom_kills() > self._oom_kills:
            # A worker is the first to go (its oom_score_adj), whoever took the memory.
            how += ", for the machine ran out of memory,"
            return self._end(Verdict.OUT_OF_MEMORY, f"the process {how} {_during(what)}")
        return self._end(Verdict.CRASHED, f"the process {how} {_during(what)}")

    def _end(self, verdict: Verdict, message: str) -> Failed:
        self.usable = False
        self.timed_out = verdict is Verdict.TIMED_OUT
        return Failed(verdict, message)

    def close(self) -> None:
        """Kill the whole tree, whatever state it is in."""
        self.usable = False
        self._channel.close()
        self._confined.kill()


def _during(what: str) -> str:
    stages = {"import": "while it was imported", "call": "before custom_kernel returned"}
    return stages.get(what, "before it was asked for anything")


def _too_slow(what: str, timeout_ns: int, whole_run: bool) -> str:
    if whole_run:
        return RUN_TOO_LONG
    seconds = f"{timeout_ns / 1e9:g} s"
    stages = {"import": "importing it", "call": "one call"}
    return f"{stages.get(what, what)} took longer than {seconds}"
