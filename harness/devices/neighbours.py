"""What other programs take of the processors while a worker is timed there."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple, Protocol

#: More of one processor than this, and a time is not the submission's alone.
SHARE = 0.2
#: The kernel counts in steps of 10 ms: over less than this nothing is said.
LEAST_NS = 300_000_000

_STAT = Path("/proc/stat")


class Tree(Protocol):
    """A worker's processes."""

    def cpu_ns(self) -> int: ...


class _Reading(NamedTuple):
    at_ns: int
    busy_ns: int  # all processors that may be used here
    own_ns: int  # this process and the worker's tree


class Neighbours:
    """A reading after each timed call; what lies between the first and the last is compared."""

    def __init__(self) -> None:
        self._spans: dict[Tree, tuple[_Reading, _Reading]] = {}

    def look(self, worker: Tree) -> None:
        """Read once more for this worker, when no clock runs."""
        own_ns = time.process_time_ns() + worker.cpu_ns()
        now = _Reading(time.monotonic_ns(), _busy_ns(), own_ns)
        first, _ = self._spans.get(worker, (now, now))
        self._spans[worker] = first, now

    def share(self) -> float | None:
        """Processors that others kept busy, on average; None when that cannot be told."""
        wall_ns = others_ns = 0
        for first, last in self._spans.values():
            wall_ns += last.at_ns - first.at_ns
            others_ns += (last.busy_ns - first.busy_ns) - (last.own_ns - first.own_ns)
        return others_ns / wall_ns if wall_ns >= LEAST_NS else None


def _busy_ns() -> int:
    """Time that the processors usable here were not idle, a hypervisor's other guests included.

    Zero where the kernel does not say.  The columns of a line are user, nice, system, idle, iowait,
    irq, softirq and steal (proc_stat(5)), in clock ticks.
    """
    try:
        text = _STAT.read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    for line in text.splitlines():
        name, *columns = line.split()
        if name in usable:
            values = list(map(int, columns[:8]))
            ticks += sum(values) - sum(values[3:5])
    return ticks * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))
