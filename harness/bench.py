"""One worker at a time, its shared buffers, and a fresh one when it has died."""

from __future__ import annotations

import time

import torch

from harness.errors import DeviceError
from harness.launch import Launcher
from harness.model import NOT_TRIED, RUN_TOO_LONG, Failed, Verdict
from harness.progress import Emit, Progress
from harness.session import Session
from harness.window import Device, Exchange, Frame, Observation, Prepared, Window

#: A submission whose worker dies in one case gets a fresh one for the next, this many times.
MAX_RESTARTS = 3


class Bench:
    """Where a submission runs.  `close` must be called; nothing is started before it is needed."""

    def __init__(self, launcher: Launcher, device: Device, emit: Emit, *, timed: bool) -> None:
        self._launcher, self._device, self._emit, self._timed = launcher, device, emit, timed
        self._session: Session | None = None
        self._mapped: tuple[Frame, int, Exchange] | None = None
        self._maps = 0  # how often the present worker was given buffers
        self._restarts = 0
        self._tried = False  # a worker has got as far as running the submission
        self._fresh = True  # no call has come back since the buffers were mapped
        self._slow = False  # a time limit was met: no more patience for compilers
        self.crowded = False  # what the worker holds left no room for a timed call's buffers
        self.root = False
        self.facts: set[str] = set()  # what workers said of themselves
        self.log = ""

    def begin(self) -> Failed | None:
        """Start a fresh worker, calibrate it, and have it import the submission."""
        self.end()
        if self._tried and time.monotonic_ns() >= self._launcher.deadline_ns:
            # Starting one takes seconds on a machine that a fork bomb has just left.
            return Failed(Verdict.TIMED_OUT, RUN_TOO_LONG)
        self._emit(Progress("starting a worker"))
        self._session, self._maps, self.crowded = self._launcher.spawn(), 0, False
        failure = self._prepare(self._session)
        if failure is not None:
            self._session.close()  # it has no kernel to call
        return failure

    def _prepare(self, session: Session) -> Failed | None:
        again, self._tried = self._tried, True
        late = self._launcher.attend(session, again=again)
        if late is not None:
            return late
        self.root = self.root or session.confined.root
        if self._timed:
            # Before the import: from then on the worker's process is not ours to calibrate.
            try:
                self._device.calibrate(session)
            except DeviceError:
                if again and time.monotonic_ns() >= self._launcher.deadline_ns:
                    return Failed(Verdict.TIMED_OUT, RUN_TOO_LONG)
                raise
        self._emit(Progress("importing the submission"))
        return self._launcher.bring_in(session)

    def alive(self) -> Session | Failed:
        """A worker that has imported the submission: the one there is, or a fresh one."""
        if self._session is not None and self._session.usable:
            return self._session
        if self._session is not None:
            if self._restarts >= MAX_RESTARTS:
                last = Verdict.TIMED_OUT if self._session.timed_out else Verdict.CRASHED
                return Failed(last, NOT_TRIED)
            # Waiting for a time limit is dear: a second time is enough to know.
            self._restarts += 2 if self._session.timed_out else 1
            self._slow = self._slow or self._session.timed_out
        failure = self.begin()
        if failure is not None:
            return failure
        assert self._session is not None
        return self._session

    @property
    def usable(self) -> bool:
        """Whether there is a worker that can go on."""
        return self._session is not None and self._session.usable

    def spawn_ahead(self, count: int) -> None:
        """Have so many fresh workers loading torch, so that nobody waits for them later."""
        self._launcher.spawn_ahead(count)

    def close(self) -> None:
        """End everything, also the workers that were spawned ahead."""
        self.end()
        self._launcher.close()

    def end(self) -> None:
        """Kill the worker and everything it started; keep what it printed."""
        if self._mapped is not None:
            self._mapped[2].close()
            self._mapped = None
        if self._session is not None:
            self._session.close()
            self.log = "\n".join(
                text for text in (self._session.confined.log(), self._session.detail) if text
            )
            self._session = None

    def window(self, prepared: Prepared, *, timed: bool) -> Window | Failed:
        """One call on these inputs, in a living worker."""
        frame = prepared.frame
        slots = self._device.buffer_sets(frame) if timed else 1
        ready = self._ready(frame, slots, timed=timed)
        if isinstance(ready, Failed):
            return ready
        session, exchange = ready
        limits = self._launcher.limits
        timeout_ns = limits.call_ns
        if self._fresh and not self._slow:
            # The first call of a shape may compile (Triton, torch.compile): importing's limit.
            timeout_ns = max(timeout_ns, limits.import_ns)
            self._fresh = False
        window = self._device.window(
            session, exchange, prepared, timeout_ns=timeout_ns, timed=timed
        )
        if isinstance(window, Failed):
            self._retire(session, window)
        else:
            self.facts.update(window.facts)
        return window

    def _ready(self, frame: Frame, slots: int, *, timed: bool) -> tuple[Session, Exchange] | Failed:
        """A living worker and buffers that it has mapped.

        A worker keeps what it has mapped until it ends, for the submission may keep tensors there:
        where that leaves no room for the next shape, a fresh worker has it.  Not in the middle of
        what is timed: whoever times sees `crowded`.  A submission would have such a one for each
        process that it dislikes (tests/exploits/zoo/h2_no_memory_for_buffers.py).
        """
        session = self.alive()
        if isinstance(session, Failed):
            return session
        had = self._maps
        try:
            exchange = self._map(session, frame, slots)
        except torch.cuda.OutOfMemoryError:  # on our side of it
            if not had:
                raise
            exchange = Failed(Verdict.OUT_OF_MEMORY, "no device memory is left for the buffers")
            self.crowded = timed
        full = isinstance(exchange, Failed) and exchange.verdict is Verdict.OUT_OF_MEMORY
        if full and had and not timed:
            self.end()
            torch.cuda.empty_cache()
            session = self.alive()
            if isinstance(session, Failed):
                return session
            exchange = self._map(session, frame, slots)
        if isinstance(exchange, Failed):
            self._retire(session, exchange)
            return exchange
        return session, exchange

    def _retire(self, session: Session, failure: Failed) -> None:
        """End a worker that a failed call has spoilt, so that the next case gets a fresh one.

        An illegal access or an assertion in a kernel poisons a CUDA context for good: all that
        follows would fail with it.  After out of memory the process may hold what others need.
        """
        if not session.usable:
            return
        detail = session.detail
        if failure.verdict is not Verdict.OUT_OF_MEMORY:
            settled = session.order("idle", timeout_ns=self._launcher.limits.call_ns)
            if not isinstance(settled, Failed):
                return
        session.detail = detail  # of the failure, not of what came of it
        session.close()

    def observe(
        self, prepared: Prepared, *, repeats: int = 1, trace: str = ""
    ) -> Observation | Failed:
        """What the submission's call does, by its worker's own profiler."""
        ready = self._ready(prepared.frame, 1, timed=False)
        if isinstance(ready, Failed):
            return ready
        session, exchange = ready
        return self._device.observe(session, exchange, prepared, repeats=repeats, trace=trace)

    def ordered(self, prepared: Prepared) -> Window | Failed | None:
        """The last window's call again, with its inputs in place before the call is made."""
        if self._session is None or self._mapped is None or not self._session.usable:
            return None
        timeout_ns = self._launcher.limits.call_ns
        return self._device.ordered(self._session, self._mapped[2], prepared, timeout_ns=timeout_ns)

    def _map(self, session: Session, frame: Frame, slots: int) -> Exchange | Failed:
        """Shared buffers that fit: the last ones, where of this layout there are enough."""
        if self._mapped is not None:
            last, had, exchange = self._mapped
            if last == frame and had >= slots:
                return exchange
            self._mapped = None
            exchange.close()
        exchange = self._device.exchange(frame, slots)
        self._maps += 1
        reply = session.order(
            "map",
            timeout_ns=self._launcher.limits.call_ns,
            descriptors=exchange.descriptors(),
            sizes=exchange.sizes(),
            **frame.to_order(slots),
        )
        if isinstance(reply, Failed):
            exchange.close()
            return reply
        self._mapped = (frame, slots, exchange)
        self._fresh = True
        return exchange
