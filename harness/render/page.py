"""Boards as one HTML file: opens offline, on a phone, in the dark, and without colour sight.

Everything in it came from strangers: names are made visible by text.plain, escaped by jinja2 and
by axes.label, and a content security policy lets no script run but the two that are ours.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import leaderboard
from harness.errors import UsageError
from harness.model import Board, Run, Summary
from harness.render import axes, page_views, plot, text, words

_HERE = Path(__file__).parent
#: Rows of the table of runs without a rank; the database holds them all.
_UNRANKED = 300


def page(
    boards: Sequence[Board],
    runs: Mapping[str, Run],
    history: Iterable[Summary],
    *,
    now_ns: int,
    with_source: bool = False,
    everything: bool = False,
    older: bool = False,
) -> str:
    """The boards as a page; the same input gives the same bytes.

    `runs` holds the run of each standing by its id (one that is missing is said to be damaged),
    `history` the runs from which the progression is drawn, `now_ns` is Unix time.  `with_source`
    includes the submissions' text, `everything` the runs without a rank; `older` says that there
    are runs before `history`.  Raises UsageError when plotly or jinja2 is not installed.
    """
    shown = [board for board in boards if board.standings or (everything and board.unranked)]
    past = page_views.by_board(history)
    figures: dict[str, axes.Figure] = {}
    views = [
        page_views.view(
            board, f"b{i}", runs, past.get((board.task, board.device), ()), figures, now_ns
        )
        for i, board in enumerate(shown)
    ]
    scripts = (plot.library(), (_HERE / "page.js").read_text(encoding="utf-8"))
    rendered: str = _template().render(
        views=views,
        now_ns=now_ns,
        with_source=with_source,
        everything=everything,
        older=older,
        style=(_HERE / "page.css").read_text(encoding="utf-8"),
        scripts=scripts,
        hashes=[_hash(script) for script in scripts],
        figures=_island(figures),
    )
    return rendered


def _island(figures: Mapping[str, axes.Figure]) -> str:
    """JSON that cannot end the element it stands in."""
    data = json.dumps(figures, allow_nan=False, separators=(",", ":"))
    return data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _template() -> Any:
    try:
        import jinja2
    except ImportError:
        remedy = "in the harness's checkout: pip install -e '.[page]'"
        raise UsageError(f"--html needs jinja2; {remedy}") from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        plain=text.plain,
        lines=lambda source: "\n".join(text.lines(source)),
        duration=text.duration,
        percent=text.percent,
        factor=text.factor,
        date=lambda ns: (text.rfc3339(ns) or "?").replace("T", " ")[:16],
        stamp=text.rfc3339,
        short=lambda name: safe if len(safe := text.plain(name)) <= 60 else safe[:59] + "\u2026",
    )
    environment.globals.update(
        spread=text.spread,
        age=text.age,
        listing=text.listing,
        doubts=words.DOUBTS,
        clocks=words.CLOCKS,
        shown=plot.SHOWN,
        most=_UNRANKED,
        light_speed=leaderboard.light_speed,
        floor_share=leaderboard.floor_share,
    )
    return environment.get_template("page.html")
