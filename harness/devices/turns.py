"""Which set of buffers a call uses.  Pure."""

from __future__ import annotations


class Turns:
    """Calls take turns in all sets: where its memory lies moves the time of a call.

    By how much is in docs/measurements/h200.md.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.last = -1  # of the last call

    def next(self) -> int:
        """The slot of the next call."""
        self.last = (self.last + 1) % self._slots
        return self.last
