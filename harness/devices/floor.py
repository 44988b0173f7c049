"""The physical floor: how fast this GPU reads, kept for each kind of device and driver."""

from __future__ import annotations

import torch

from harness import stats
from harness.devices import bandwidth
from harness.devices.bodies import Bodies, events

#: Large enough that ramp and tail of the read do not show: 4 GiB take about 1 ms on an H200.
READ_BYTES = 4 << 30
REPEATS = 8
#: Bytes that one block reads, the variants tried.
PIECES = (64 << 10, 128 << 10, 256 << 10, 1 << 20, 8 << 20)


class Floor:
    """Read bandwidth of one GPU: the best that was ever measured of its kind with this driver.

    A stranger at work makes a measurement too slow, and a floor from that would accuse honest
    kernels for ever after (0.6 instead of 4.2 TB/s on an H200 where tests ran beside the first
    run).  So every process measures once, in some 50 ms, and what is kept only grows.
    """

    def __init__(self, bodies: Bodies, device: int, driver_version: str) -> None:
        self._bodies = bodies
        self._device = device
        self._key = f"{torch.cuda.get_device_name(device)} / {driver_version}"
        self._bandwidth = 0.0  # not measured yet

    def bandwidth(self) -> float:
        """Bytes per second of a long read, the best of several: a floor must not be too slow."""
        if not self._bandwidth:
            self.measure()
        return self._bandwidth

    def floor_ns(self, compulsory_bytes: int) -> float:
        return compulsory_bytes / self.bandwidth() * 1e9

    def measure(self) -> None:
        """Read now; a faster one than is known takes its place."""
        bytes_per_s, whole = self._measure()
        best = bandwidth.best(self._key, bytes_per_s, keep=whole)
        self._bandwidth = max(best, self._bandwidth)

    def _measure(self) -> tuple[float, bool]:
        """Bytes per second, and whether there was memory for a read that is long enough."""
        free, _ = torch.cuda.mem_get_info(self._device)
        size = min(READ_BYTES, free // 2) // 16 * 16
        memory = torch.zeros(size, dtype=torch.uint8, device=f"cuda:{self._device}")
        # How many blocks read fastest depends on the part; a floor is the best of all.
        best_s = min(self._read_s(memory, max(1, size // piece)) for piece in PIECES)
        del memory
        torch.cuda.empty_cache()  # what is timed will want it
        return size / best_s, size == READ_BYTES

    def _read_s(self, memory: torch.Tensor, blocks: int) -> float:
        times = []
        for _ in range(REPEATS):
            begin, end = events(2)
            begin.record()
            self._bodies.read(memory, blocks)
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1e3)
        return stats.percentile(times, 0.1)
