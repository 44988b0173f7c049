"""What a judge says while it works."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Progress:
    """One step: the stage, what it works on, and how far it is."""

    stage: str
    subject: str = ""
    done: int = 0
    total: int | None = None
    process: int | None = None
    processes: int | None = None
    latest_ns: int | None = None  # the last sample, as the judge's clock saw it
    left_ns: int | None = None  # of this stage's budget


#: Says no more than that the judge lives; nobody is shown it.
STILL = Progress("")

#: Takes what a judge says; must not raise.
Emit: TypeAlias = Callable[[Progress], None]


class Stages:
    """Passes progress on and adds up how long each stage took."""

    def __init__(self, emit: Emit, now: Callable[[], int] = time.monotonic_ns) -> None:
        self._emit, self._now = emit, now
        self._stage = "starting"
        self._since_ns = now()
        self._spent: dict[str, int] = {}

    def __call__(self, step: Progress) -> None:
        if step != STILL:
            self._close(step.stage)
        self._emit(step)

    def spent(self) -> tuple[tuple[str, int], ...]:
        """Stages in the order they first came, with the ns spent in each so far."""
        self._close(self._stage)
        return tuple(self._spent.items())

    def _close(self, following: str) -> None:
        now_ns = self._now()
        self._spent[self._stage] = self._spent.get(self._stage, 0) + now_ns - self._since_ns
        self._stage, self._since_ns = following, now_ns
