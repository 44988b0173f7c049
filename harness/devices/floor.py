"""The physical floor: how fast this GPU reads, measured once per device and driver."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path

import torch

from harness import machine, stats, whole_file
from harness.devices.bodies import Bodies, events

#: Large enough that ramp and tail of the read do not show: 4 GiB take about 1 ms on an H200.
READ_BYTES = 4 << 30
REPEATS = 8
#: Bytes that one block reads, the variants tried.
PIECES = (64 << 10, 128 << 10, 256 << 10, 1 << 20, 8 << 20)


class Floor:
    """Read bandwidth of one GPU, measured when it is first asked for and kept in a file."""

    def __init__(
        self, bodies: Bodies, device: int, driver_version: str, *, alone: bool = True
    ) -> None:
        """`alone`: nobody else uses the GPU, so that what is measured now is worth keeping."""
        self._bodies = bodies
        self._alone = alone
        name = torch.cuda.get_device_name(device)
        self._device = device
        self._key = f"{name} / {driver_version}"
        self._bandwidth: float | None = None

    def bandwidth(self) -> float:
        """Bytes per second of a long read, the best of several: a floor must not be too slow."""
        if self._bandwidth is None:
            known = _load()
            if self._key not in known:
                known[self._key], whole = self._measure()
                if whole and self._alone:
                    _save(known)
            self._bandwidth = known[self._key]
        return self._bandwidth

    def floor_ns(self, compulsory_bytes: int) -> float:
        return compulsory_bytes / self.bandwidth() * 1e9

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


def _path() -> Path:
    return machine.cache_folder() / "bandwidth.json"


def _load() -> dict[str, float]:
    """What was measured before; a file that cannot be read is measured again."""
    try:
        data = json.loads(_path().read_text(encoding="utf-8"))
        return {
            str(key): float(value)
            for key, value in data.items()
            if math.isfinite(value) and value > 0
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _save(known: dict[str, float]) -> None:
    """Keep it for the next run; a home that cannot be written costs 30 ms a run."""
    with contextlib.suppress(OSError):
        path = _path()
        path.parent.mkdir(parents=True, exist_ok=True)
        whole_file.put(path, json.dumps(known, indent=1).encode())
