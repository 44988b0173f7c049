"""A comparison on a terminal, and as a document."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from harness import stats
from harness.compare import Result
from harness.render import text
from harness.render.export import SCHEMA
from harness.render.table import Cell, Column, Fitted
from harness.render.text import Marks, plain
from harness.stats import Change, Comparison

_WORDS = {
    Change.FASTER: "A is faster",
    Change.SLOWER: "A is slower",
    Change.INDISTINGUISHABLE: "too close to call",
}


def comparison_view(result: Result, signs: Marks) -> RenderableType:
    """Both times by shape, A's share of B's with its interval, and one sentence."""
    a, b = plain(result.a, signs.encoding), plain(result.b, signs.encoding)
    columns = [
        Column("shape"),
        Column("A", right=True),
        Column("B", right=True),
        Column("A / B", right=True),
        Column("95%", right=True, order=1),
        Column(""),
    ]
    rows: list[list[Cell]] = [
        [
            plain(s.shape.label, signs.encoding),
            text.duration(s.a_ns, signs),
            text.duration(s.b_ns, signs),
            *_figures(s.change, signs),
        ]
        for s in result.shapes
    ]
    rows.append([("overall", "bold"), "", "", *_figures(result.overall, signs)])
    rows.append(["A against itself", "", "", *_figures(result.floor, signs)[:2], _floor(result)])
    return Group(
        Text(f"A is {a}, B is {b}, on {plain(result.device, signs.encoding)}", "bold"),
        "",
        Fitted(columns, rows),
        "",
        _sentence(result, a, b, signs),
    )


def document(result: Result) -> dict[str, Any]:
    """The comparison for programs: ratios are A's time over B's, in full precision."""
    return {
        "schema": SCHEMA,
        "comparison": {
            "a": result.a,
            "b": result.b,
            "device": result.device,
            "quartets": result.quartets,
            "min_effect": result.min_effect,
            "reliable": result.reliable,
            "overall": _document(result.overall),
            "a_against_a": _document(result.floor),
            "shapes": [
                {"shape": dict(s.shape.axes), "a_ns": s.a_ns, "b_ns": s.b_ns} | _document(s.change)
                for s in result.shapes
            ],
        },
    }


def _document(change: Comparison) -> dict[str, Any]:
    return {
        "ratio": change.ratio,
        "low": change.low,
        "high": change.high,
        "outcome": change.outcome.value,
        "p": change.p,
    }


def _figures(change: Comparison, signs: Marks) -> list[Cell]:
    return [
        f"{change.ratio:.4f}",
        f"{change.low:.4f}{signs.to}{change.high:.4f}",
        _WORDS[change.outcome],
    ]


def _floor(result: Result) -> str:
    """The least that would be called a difference, where noise does not hide as much anyway."""
    if _half_width(result.overall) > math.log1p(result.min_effect):
        return ""
    return f"nothing below {100 * result.min_effect:.2f}% is called a difference"


def _half_width(change: Comparison) -> float:
    return stats.half_width(stats.Interval(change.ratio, change.low, change.high))


def _sentence(result: Result, a: str, b: str, signs: Marks) -> Text:
    overall, said = result.overall, Text(a, "bold")
    if overall.outcome is Change.INDISTINGUISHABLE:
        said.append(" and ", "").append(b, "bold").append(" are too close to call", "")
        one = "A" if a == b else a
        said.append(f": {one} takes {_between(overall)} time; {_remedy(result)}.", "")
    else:
        way = "less" if overall.outcome is Change.FASTER else "more"
        said.append(f" takes {abs(100 * (overall.ratio - 1)):.2f}% {way} time than ", "")
        said.append(b, "bold").append(f" ({_percent(overall)}).", "")
    if not result.reliable:
        said.append(" A differed from itself: this machine was not steady.", "yellow")
    return said


def _remedy(result: Result) -> str:
    if result.cut_short:
        return "more --repeats and a larger --budget see smaller differences"
    return "more --repeats see smaller differences"


def _between(change: Comparison) -> str:
    """Both ends of the interval in words: `between 1.00% less and 2.00% more`."""
    low, high = 100 * (change.low - 1), 100 * (change.high - 1)
    if low < 0 < high:
        return f"between {-low:.2f}% less and {high:.2f}% more"
    near, far = sorted((abs(low), abs(high)))
    return f"between {near:.2f}% and {far:.2f}% {'less' if low < 0 else 'more'}"


def _percent(change: Comparison) -> str:
    low, high = 100 * (change.low - 1), 100 * (change.high - 1)
    return f"{low:+.2f}% to {high:+.2f}%"
