"""Boards for spreadsheets and pull requests: CSV and Markdown."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable
from typing import Any

from harness.model import Board, Standing
from harness.render import text

#: One line per entry; the shapes follow as `time_ns <shape>`.
_COLUMNS = (
    *("task", "device", "rank", "rank_low", "rank_high", "submission", "author"),
    *("score_ns", "low_ns", "high_ns", "speedup", "light_speed", "floor_share"),
    *("isolation", "clock", "doubts", "run", "created", "reason"),
)


def boards_csv(boards: Iterable[Board], *, everything: bool = False) -> str:
    """Standings as CSV for a spreadsheet: numbers in full, no text that it takes for a formula."""
    boards = tuple(boards)
    labels = dict.fromkeys(
        f"time_ns {sh.shape.label}" for b in boards for s in b.standings for sh in s.shapes
    )
    out = io.StringIO()
    writer = csv.DictWriter(out, [*_COLUMNS, *labels], restval="", lineterminator="\n")
    writer.writeheader()
    for board in boards:
        for row in _csv_rows(board, everything):
            writer.writerow({name: _cell(value) for name, value in row.items()})
    return out.getvalue()


def _csv_rows(board: Board, everything: bool) -> Iterable[dict[str, Any]]:
    place = {"task": board.task, "device": board.device}
    for s in board.standings:
        row = {name: getattr(s, name, None) for name in _COLUMNS} | place
        row |= {"doubts": ", ".join(s.doubts), "created": text.rfc3339(s.created_ns)}
        yield row | {f"time_ns {sh.shape.label}": sh.median_ns for sh in s.shapes}
    for u in board.unranked if everything else ():
        yield place | {
            "submission": u.submission,
            "author": u.author,
            "run": u.run,
            "created": text.rfc3339(u.created_ns),
            "reason": u.reason,
        }


def _cell(value: object) -> object:
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else ""
    if not isinstance(value, str):
        return "" if value is None else value
    safe = text.plain(value)
    # A spreadsheet runs what begins like a formula; an apostrophe makes it text (OWASP).
    return f"'{safe}" if safe.startswith(("=", "+", "-", "@")) else safe


def boards_markdown(boards: Iterable[Board], *, everything: bool = False) -> str:
    """Standings as tables for a pull request."""
    parts = []
    for board in boards:
        rows = [_markdown_row(s, t) for s, t in _scored(board.standings)]
        head = "| rank | submission | author | score | \u00b1 95% | speedup | doubts |"
        parts.append(f"{code(board.task)} on {code(board.device)}\n")
        parts.append("\n".join([head, "| ---: | --- | --- | ---: | ---: | ---: | --- |", *rows]))
        if everything and board.unranked:
            parts.append("\n| without a rank | author | why |\n| --- | --- | --- |")
            parts += [
                _line(code(t) for t in (u.submission, u.author, u.reason)) for u in board.unranked
            ]
        parts.append("")
    return "\n".join(parts)


def _scored(standings: Iterable[Standing]) -> Iterable[tuple[Standing, str]]:
    standings = tuple(standings)
    return zip(standings, text.durations([s.score_ns for s in standings]), strict=True)


def _markdown_row(s: Standing, score: str) -> str:
    between = f" ({s.rank_low}\u2013{s.rank_high})" if s.rank_low != s.rank_high else ""
    cells = (
        f"{s.rank}{between}",
        code(s.submission),
        code(s.author),
        score,
        text.spread(s.low_ns, s.score_ns, s.high_ns),
        text.factor(s.speedup),
        ", ".join(s.doubts),
    )
    return _line(cells)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def code(value: str) -> str:
    """Untrusted text as a code span: there no markup, HTML, mention or link is read."""
    safe = text.plain(value)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", safe)), default=0))
    pad = " " if "`" in safe else ""
    # A table splits cells at bars even inside code, and takes a backslash before one for an escape.
    safe = safe.replace("\\|", "\\x7c").replace("|", "\\|")
    return f"{fence}{pad}{safe}{pad}{fence}" if safe else "\u2013"
