"""Signals that end a run, as Ctrl-C does; once its result is in hand they wait until it is kept."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Stop:
    """Their handler: ends what goes on, or notes that a signal came while one waits."""

    def __init__(self, *, keeps: bool) -> None:
        self.keeps = keeps
        self.waits = False
        self.came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.waits:
            raise KeyboardInterrupt
        self.came = True

    def catch_up(self) -> None:
        """End what goes on if a signal came meanwhile."""
        self.waits = False
        if self.came:
            raise KeyboardInterrupt


@contextlib.contextmanager
def interruptible(*, keeps: bool = False) -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: the judge and its worker go first.

    `keeps`: what ends within is kept within; a signal that comes between the two (`in_hand`) is
    raised at the end, or as the next run begins.
    """
    if outer := _current():
        outer.catch_up()
        yield
        return
    stop = _Stop(keeps=keeps)
    # Who ignores one (nohup) goes on ignoring it.
    wanted = [number for number in _NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    old = {number: signal.signal(number, stop) for number in wanted}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    stop.catch_up()


def in_hand() -> None:
    """There is a result, which a signal must not lose: it waits, where somebody keeps results."""
    if stop := _current():
        stop.waits = stop.keeps


def at_once() -> None:
    """From here on a signal ends what goes on; one that came before goes on waiting."""
    if stop := _current():
        stop.waits = False


def _current() -> _Stop | None:
    """The handler in use, which the process's own table of handlers tells."""
    handlers = (signal.getsignal(number) for number in _NUMBERS)
    return next((handler for handler in handlers if isinstance(handler, _Stop)), None)
