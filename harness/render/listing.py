"""The latest runs of every kind, one line each: what there is to show, compare and export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from harness.model import Summary, Verdict
from harness.render import export, text
from harness.render.table import Cell, Column, Fitted
from harness.render.text import Marks, plain


def runs_table(
    runs: Sequence[Summary],
    ranks: Mapping[str, int],
    reasons: Mapping[str, str],
    *,
    signs: Marks,
    now_ns: int,
) -> RenderableType:
    """A row a run.  `ranks`, and `reasons` where it has none: by run id.  `now_ns` is Unix time."""
    columns = [
        Column("run"),
        Column("submission", wrap=True),
        Column("author", order=5, wrap=True),
        Column("mode", order=6),
        Column("verdict", order=8),
        Column("score", right=True, order=9),
        Column(f"{signs.plus_minus} 95%", right=True, order=4),
        Column("rank", right=True, order=7),
        Column("device", order=2, wrap=True),
        Column("age", right=True, order=3),
        Column("why", order=1, wrap=True),
    ]
    scores = text.durations([run.score_ns for run in runs], signs)
    rows = [
        _row(run, score, ranks.get(run.id), reasons.get(run.id, ""), signs, now_ns)
        for run, score in zip(runs, scores, strict=True)
    ]
    return Fitted(columns, rows)


def runs_document(runs: Sequence[Summary], ranks: Mapping[str, int]) -> dict[str, Any]:
    """The same for programs, in full precision: `listed`, newest first."""
    return {
        "schema": export.SCHEMA,
        "listed": [_listed(run, ranks.get(run.id)) for run in runs],
    }


def _listed(run: Summary, rank: int | None) -> dict[str, Any]:
    return {
        "id": run.id,
        "task": run.task,
        "mode": run.mode.value,
        "verdict": run.verdict.value,
        "message": run.message,
        "created": text.rfc3339(run.created_ns),
        "submission": run.submission,
        "author": run.author,
        "device": run.device,
        "doubts": [doubt.value for doubt in run.doubts],
        "score_ns": run.score_ns,
        "score_low_ns": run.low_ns,
        "score_high_ns": run.high_ns,
        "rank": rank,
    }


def _row(
    run: Summary, score: str, rank: int | None, why: str, signs: Marks, now_ns: int
) -> list[Cell]:
    passed = run.verdict is Verdict.PASSED
    return [
        plain(run.id, signs.encoding),
        plain(run.submission, signs.encoding),
        plain(run.author, signs.encoding),
        run.mode.value,
        (run.verdict.value, "" if passed else "red"),
        score if run.score_ns else "",
        _width(run, signs) if run.score_ns else "",
        "" if rank is None else str(rank),
        plain(run.device, signs.encoding),
        text.age(run.created_ns, now_ns),
        plain(why, signs.encoding),
    ]


def _width(run: Summary, signs: Marks) -> str:
    return text.spread(run.low_ns or 0.0, run.score_ns or 0.0, run.high_ns or 0.0, signs)
