"""How long the judge waits: for a call that is not queued yet, and for the end of a stream."""

from __future__ import annotations

import time
from collections.abc import Callable

#: How long a submission may take to queue its call behind the gate before the gate opens anyway.
LONG_NS = 30_000_000
#: The same once it was seen to wait for its own work inside the call, so many times in a row.
SHORT_NS = 3_000_000
WAITS = 3
#: A slow start (a module loaded, memory allocated) is no habit: each so many windows, ask again.
AGAIN = 8


class Patience:
    """One worker's.  A call that waits for its own work is queued only once the gate is open."""

    def __init__(self) -> None:
        self._waits = 0  # windows in a row that were not queued in time

    def saw(self, *, waited: bool) -> None:
        """Remember how the last window went."""
        self._waits = self._waits + 1 if waited else 0

    @property
    def ns(self) -> int:
        """For the next window."""
        return SHORT_NS if self._waits >= WAITS and self._waits % AGAIN else LONG_NS


def reached(query: Callable[[], bool], patience_ns: int) -> bool:
    """Whether an event comes to pass within `patience_ns`; CUDA's own wait for one has no end."""
    begin_ns = time.monotonic_ns()
    while not query():
        waited_ns = time.monotonic_ns() - begin_ns
        if waited_ns > patience_ns:
            return False
        if waited_ns > 2_000_000:
            time.sleep(0.001)
    return True
