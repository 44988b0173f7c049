"""What the page's plots share: round numbers, rows, safe labels, the look of a figure."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

from harness.render import text

#: Which tens, halves or fifths of a power of ten a log axis may be marked at, coarse to fine.
_STEPS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), tuple(i / 10 for i in range(10, 100, 2)))

#: A Plotly figure as plain data.  A colour is a token such as `$accent`, which page.js replaces by
#: the theme's; no meaning hangs on colour alone.
Figure = dict[str, Any]


def label(name: str, limit: int = 60) -> str:
    """Untrusted text for Plotly, which reads tags such as <a href> in every label."""
    safe = text.plain(name)
    safe = safe if len(safe) <= limit else safe[: limit - 1] + "\u2026"
    return html.escape(safe, quote=False)


def ticks(low: float, high: float) -> list[float]:
    """Round numbers for a log axis: three to eight of them where the range allows."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in (
        (1,),
        (1, 3),
        (1, 2, 5),
        (1, 1.5, 2, 3, 5, 7),
        tuple(i / 10 for i in range(10, 100, 2)),
    ):
        found = [s * 10.0**e for e in range(first, last + 1) for s in steps]
        found = [v for v in found if low <= v <= high]
        if len(found) >= 3:
            return found if len(found) <= 8 else found[:: math.ceil(len(found) / 8)]
    return linear_ticks(high, low)


def linear_ticks(high: float, low: float = 0.0, *, parts: int = 4) -> list[float]:
    """Round numbers from `low` to `high`, some `parts` steps apart."""
    raw = (high - low) / parts
    if not raw > 0:
        return [low]
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= raw)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, first + 6) if low <= i * step <= high * 1.0001]


def digits(marks: Iterable[float]) -> int:
    """How many significant digits tell these round numbers; at most four."""
    known = list(marks)
    for count in (1, 2, 3):
        if all(abs(float(f"{v:.{count - 1}e}") / v - 1) < 1e-9 for v in known):
            return count
    return 4


def tick(ns: float) -> str:
    """A time as the label of a round number."""
    return text.duration(ns, digits=digits([ns])) if ns else "0"


def rows_axis(names: Sequence[str]) -> dict[str, Any]:
    """A vertical axis of one row per name, the first on top."""
    return {
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "range": [len(names) - 0.4, -0.6],
        "showgrid": False,
        "ticks": "",
    }


def figure(data: list[dict[str, Any]], layout: dict[str, Any]) -> Figure:
    """A figure in the page's style: it does not zoom, so that a finger on it scrolls the page."""
    axis = {
        "fixedrange": True,
        "gridcolor": "$rule",
        "zerolinecolor": "$rule",
        "linecolor": "$rule",
    }
    for name in ("xaxis", "yaxis"):
        layout[name] = {**axis, "zeroline": False, "automargin": False, **layout[name]}
    return {
        "data": data,
        "layout": {
            "showlegend": False,
            "dragmode": False,
            "hovermode": "closest",
            "bargap": 0.3,
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": "$mute", "size": 12},
            "hoverlabel": {
                "bgcolor": "$card",
                "bordercolor": "$rule",
                "font": {"color": "$ink", "size": 12},
                "align": "left",
            },
            **layout,
        },
    }
