"""Runs and boards for programs: one JSON document, strict, in full precision, null for unknown.

The fields are those of DESIGN.md 8; a new one needs no new schema number, a changed one does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from harness import leaderboard
from harness.model import (
    Board,
    CaseResult,
    Check,
    Run,
    Shape,
    ShapeStanding,
    Standing,
    Timing,
    Unranked,
    Worst,
)
from harness.render import text

SCHEMA = 1


def dumps(document: Mapping[str, Any]) -> str:
    """The document as strict JSON in ASCII: lone surrogates and any locale survive it."""
    return json.dumps(document, indent=2, allow_nan=False)


def run_document(runs: Iterable[Run], ranks: Mapping[str, int]) -> dict[str, Any]:
    """`--json` of `run` and `show`; `ranks` holds the rank of each run that has one, by its id."""
    return {"schema": SCHEMA, "runs": [_run(run, ranks.get(run.id)) for run in runs]}


def boards_document(boards: Iterable[Board], *, everything: bool = False) -> dict[str, Any]:
    """`leaderboard --json`; `everything` adds the runs without a rank, and why."""
    return {"schema": SCHEMA, "boards": [_board(board, everything) for board in boards]}


def _run(run: Run, rank: int | None) -> dict[str, Any]:
    facts = {k: v for k, v in run.device.facts if k not in ("kind", "name")}
    summary = leaderboard.summarise(run)
    return {
        "id": run.id,
        "task": run.task,
        "mode": run.mode.value,
        "verdict": run.verdict.value,
        "message": run.message,
        "created": text.rfc3339(run.created_ns),
        "duration_s": run.duration_ns / 1e9,
        "submission": {
            "name": run.submission.name,
            "path": run.submission.path,
            "sha256": run.submission.sha256,
            "author": run.submission.author,
        },
        "device": {"kind": run.device.kind, "name": run.device.name, **facts},
        "reference": run.reference.value,
        "isolation": run.isolation.value,
        "clock": run.clock.value,
        "doubts": [doubt.value for doubt in run.doubts],
        "score_ns": _number(run.score_ns),
        "score_low_ns": _number(summary.low_ns),
        "score_high_ns": _number(summary.high_ns),
        "rank": rank,
        "cases": [_case(case) for case in run.cases],
        "log": run.log,
    }


def _case(case: CaseResult) -> dict[str, Any]:
    check, timing = case.outcome.check, case.timing
    return {
        "kind": case.case.kind.value,
        "shape": _shape(case.case.shape),
        "inputs": case.case.inputs,
        "verdict": case.verdict.value,
        "message": case.message,
        "check": None if check is None else _check(check),
        "timing": None if timing is None else _timing(timing),
    }


def _check(check: Check) -> dict[str, Any]:
    return {
        "max_abs": _number(check.max_abs),
        "max_rel": _number(check.max_rel),
        "max_ulp": _number(check.max_ulp),
        "mismatches": check.mismatches,
        "elements": check.elements,
        "worst": None if check.worst is None else _worst(check.worst),
    }


def _worst(worst: Worst) -> dict[str, Any]:
    # What is no number is no distance away; runs of version 0.2 say 0 there.
    apart = math.isfinite(worst.expected) and math.isfinite(worst.got)
    return {
        "index": list(worst.index),
        "expected": _element(worst.expected),
        "got": _element(worst.got),
        "ulp": _number(worst.ulp) if apart else None,
    }


def _timing(timing: Timing) -> dict[str, Any]:
    return {
        "median_ns": _number(timing.median_ns),
        "low_ns": _number(timing.low_ns),
        "high_ns": _number(timing.high_ns),
        "mean_ns": _number(timing.mean_ns),
        "std_ns": _number(timing.std_ns),
        "best_ns": _number(timing.best_ns),
        "worst_ns": _number(timing.worst_ns),
        "samples": timing.samples,
        "processes": timing.processes,
        "host_median_ns": _number(timing.host_median_ns),
        "judge_ns": _number(timing.judge_ns),
        "judge_most_ns": _number(timing.judge_most_ns),
        "floor_ns": _number(timing.floor_ns),
        "stop": timing.stop.value,
    }


def _board(board: Board, everything: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "task": board.task,
        "device": board.device,
        "standings": [_standing(standing) for standing in board.standings],
    }
    if everything:
        document["unranked"] = [_unranked(row) for row in board.unranked]
    return document


def _standing(s: Standing) -> dict[str, Any]:
    return {
        "rank": s.rank,
        "rank_low": s.rank_low,
        "rank_high": s.rank_high,
        "submission": s.submission,
        "author": s.author,
        "score_ns": _number(s.score_ns),
        "low_ns": _number(s.low_ns),
        "high_ns": _number(s.high_ns),
        "speedup": _number(s.speedup),
        "light_speed": _number(s.light_speed),
        "shapes": [_timed(shape) for shape in s.shapes],
        "run": s.run,
        "created": text.rfc3339(s.created_ns),
        "doubts": [doubt.value for doubt in s.doubts],
        "isolation": s.isolation.value,
        "clock": s.clock.value,
    }


def _timed(shape: ShapeStanding) -> dict[str, Any]:
    return {
        "shape": _shape(shape.shape),
        "median_ns": _number(shape.median_ns),
        "low_ns": _number(shape.low_ns),
        "high_ns": _number(shape.high_ns),
        "floor_ns": _number(shape.floor_ns),
        "light_speed_ns": shape.shape.light_speed_ns,
    }


def _unranked(row: Unranked) -> dict[str, Any]:
    return {
        "run": row.run,
        "submission": row.submission,
        "author": row.author,
        "created": text.rfc3339(row.created_ns),
        "verdict": row.verdict.value,
        "reason": row.reason,
    }


def _shape(shape: Shape) -> dict[str, int]:
    return dict(shape.axes)


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _element(value: float) -> float | str:
    """An element of an output, which may rightly be none of JSON's numbers: nan, inf or -inf."""
    return value if math.isfinite(value) else str(value)
