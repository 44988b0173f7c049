"""Bodies of known length: how their windows are taken, on a device that is none."""

from __future__ import annotations

from typing import Any, cast

import pytest

from harness import stats
from harness.devices import known
from harness.errors import DeviceError
from harness.model import Failed, Verdict
from harness.window import Window

BODIES = ("null", "spin:0", "spin:2000")
LENGTHS_NS = {"null": 0, "spin:0": 1800, "spin:2000": 2800}


class Drifting:
    """Reads every call 2 ns longer than the one before, and the first four 5 us longer."""

    name = "cuda:0"

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.asked: list[str] = []
        self._fails_at = fails_at

    def window(self, *_: object, body: str, **__: object) -> Window | Failed:
        self.asked.append(body)
        calls = len(self.asked)
        if calls == self._fails_at:
            return Failed(Verdict.CRASHED, "it ended")
        claimed_ns = LENGTHS_NS[body] + 2 * calls + (5000 if calls <= 4 else 0)
        return Window(300_000, claimed_ns, 0, None, tripped=False, late=False)


def _in_turn(device: Drifting, windows: int) -> list[list[Window]]:
    nobody = cast(Any, None)
    return known._in_turn(cast(Any, device), nobody, nobody, nobody, BODIES, windows)


def test_each_round_holds_each_body_once_after_all_have_warmed_up() -> None:
    device = Drifting()
    taken = _in_turn(device, 5)
    warm = known.WARM_WINDOWS + known.LOAD_WINDOWS * len(BODIES)
    assert device.asked[warm:] == [*BODIES] * 5
    assert [len(of_body) for of_body in taken] == [5, 5, 5]


def test_drift_meets_all_bodies_alike() -> None:
    """One body after the other, 40 windows each, would read the last 160 ns longer."""
    medians = [
        stats.median([float(window.claimed_ns) for window in of_body])
        for of_body in _in_turn(Drifting(), 40)
    ]
    assert medians[1] - medians[0] == pytest.approx(1800, abs=2)
    assert medians[2] - medians[1] == pytest.approx(1000, abs=2)


def test_a_window_that_fails_is_our_failure() -> None:
    with pytest.raises(DeviceError, match="calibration failed: it ended"):
        _in_turn(Drifting(fails_at=9), 5)
