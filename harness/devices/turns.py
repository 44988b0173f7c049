"""Which sets of buffers a window's calls use.  Pure."""

from __future__ import annotations

import random


class Turns:
    """Single calls take turns in all sets; the calls of one window lie in random order.

    Where its memory lies moves the time of a call (docs/measurements/h200.md).
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._next = 0
        self.last: tuple[int, ...] = ()  # of the last window
        self._one_ns = self._all_ns = 0.0

    def places(self, calls: int) -> list[int]:
        """Slots for so many calls, at most as many as there are."""
        found = [(self._next + i) % self.slots for i in range(calls)]
        self._next = (self._next + calls) % self.slots
        random.SystemRandom().shuffle(found)
        self.last = tuple(found)
        return found

    def knows_quiet(self, one_ns: float, all_ns: float) -> None:
        """Keep how long the reveal of one slot takes undisturbed, and of all."""
        self._one_ns, self._all_ns = one_ns, all_ns

    def quiet_reveal_ns(self, calls: int) -> float:
        """How long the reveal of so many slots takes undisturbed."""
        share = (calls - 1) / max(1, self.slots - 1)
        return self._one_ns + share * (self._all_ns - self._one_ns)
