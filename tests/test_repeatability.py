"""The repeatability benchmark reads runs and says what they cover."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.repeatability import Shot, read, report


def test_coverage_counts_the_intervals_that_hold_the_pooled_median() -> None:
    shots = [
        Shot((1000.0, 970.0, 1020.0), 1.0, {"8": (1000.0, 990.0, 1010.0)}),
        Shot((1010.0, 980.0, 1030.0), 1.0, {"8": (1010.0, 1000.0, 1020.0)}),
        Shot((1100.0, 1000.0, 1120.0), 1.0, {"8": (1100.0, 1090.0, 1110.0)}),
    ]
    text = report(shots)
    assert "score: spread 10.00%; 3 of 3 intervals cover the pooled median, 1.010 us" in text
    assert "8: spread 10.00%; 2 of 3 intervals cover the pooled median, 1.010 us" in text


def test_a_run_without_a_score_ends_the_benchmark() -> None:
    run: dict[str, Any] = {
        "id": "x",
        "score_ns": None,
        "duration_s": 1,
        "message": "wrong",
        "cases": [],
    }
    with pytest.raises(SystemExit, match="wrong"):
        read(run)
