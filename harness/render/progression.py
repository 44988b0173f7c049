"""Who led a board, when, and in what time: the history as moments, and as a figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from harness.model import Summary
from harness.render import axes, text

#: Rings behind the progression; a few hundred show the density of a hundred thousand.
_DOTS = 600
#: Stairs; more are narrower than a pixel.
_STEPS = 400
#: Share of the width that a name beside a step takes on a wide screen.
_ROOM = 0.17


class Moment(NamedTuple):
    """A point in a board's history: Unix time, score, who, run."""

    created_ns: int
    score_ns: float
    submission: str
    run: str


def leaders(history: Sequence[Summary]) -> tuple[Moment, ...]:
    """Who led when, and in what time: one moment for each change of either.

    At any moment an entry stands at its latest run, so a leader who measures slower later gives
    way; a fluke is a step down and a step up, not a record for ever.
    """
    standing: dict[tuple[str, str], Summary] = {}
    made: list[Moment] = []
    best: tuple[str, str] | None = None
    for row in sorted(history, key=lambda r: (r.created_ns, r.id)):
        entrant = (row.author, row.submission)
        standing[entrant] = row
        if entrant == best:
            best = min(standing, key=lambda e: _score(standing[e]))
        elif best is None or _score(row) < _score(standing[best]):
            best = entrant
        else:
            continue
        lead = standing[best]
        now = Moment(row.created_ns, _score(lead), lead.submission, lead.id)
        if not made or made[-1][1:] != now[1:]:
            made.append(now)
    return tuple(made)


def progression(history: Sequence[Summary], now_ns: int) -> axes.Figure | None:
    """The leader's time as a staircase, every ranked run as a faint ring; None without history.

    `history` holds eligible runs of one board and one version of its task.
    """
    steps = _few(leaders(history), _STEPS)
    if not steps:
        return None
    dots = _few(sorted(Moment(r.created_ns, _score(r), r.submission, r.id) for r in history), _DOTS)
    lasting = [*steps, steps[-1]._replace(created_ns=max(now_ns, steps[-1].created_ns))]
    times = [m.score_ns for m in (*steps, *dots)]
    low, high = min(times) / 1.12, max(times) * 1.12
    marks = axes.ticks(low, high)
    return axes.figure(
        [
            _points(dots, "run", {"symbol": "circle-open", "size": 6, "color": "$mute"}, 0.55),
            {
                "type": "scatter",
                "mode": "lines",
                "x": [_date(m) for m in lasting],
                "y": [m.score_ns for m in lasting],
                "line": {"shape": "hv", "color": "$accent", "width": 2.5},
                "hoverinfo": "skip",
            },
            _points(
                steps,
                "leader",
                {"size": 9, "color": "$accent", "line": {"width": 2, "color": "$paper"}},
            ),
        ],
        {
            "height": 340,
            "margin": {"l": 62, "r": 14, "t": 26, "b": 34},
            "annotations": _names(steps, now_ns),
            "xaxis": {"type": "date", "showgrid": False, "nticks": 6, "tickangle": 0},
            "yaxis": {
                "type": "log",
                "range": [math.log10(low), math.log10(high)],
                "tickvals": marks,
                "ticktext": [text.duration(v, digits=axes.digits(marks)) for v in marks],
            },
        },
    )


def _points(
    moments: Sequence[Moment], what: str, marker: dict[str, Any], opacity: float = 1.0
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [_date(m) for m in moments],
        "y": [m.score_ns for m in moments],
        "text": [_hover(m, what) for m in moments],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {**marker, "opacity": opacity},
    }


def _names(steps: Sequence[Moment], now_ns: int) -> list[dict[str, Any]]:
    """Name a new leader at the step, where there is room beside the one named before.

    Those called `wide` find room on a wide screen only; page.js leaves them out on a phone.
    """
    span = max(1, max(now_ns, steps[-1].created_ns) - steps[0].created_ns)
    made: list[dict[str, Any]] = []
    taken = wide = math.inf
    named = ""
    for before, m in reversed([*zip((None, *steps), steps, strict=False)]):
        place = (m.created_ns - steps[0].created_ns) / span
        new = before is None or before.submission != m.submission
        if new and m.submission != named and taken - place > _ROOM:
            roomy = wide - place > 2 * _ROOM
            made.append(_name(m, place, "always" if roomy else "wide"))
            taken, named, wide = place, m.submission, place if roomy else wide
    return made


def _name(m: Moment, place: float, when: str) -> dict[str, Any]:
    right = place > 0.75  # near the edge a name goes to the left of its step
    return {
        "x": _date(m),
        "y": math.log10(m.score_ns),
        "text": axes.label(m.submission, 18),
        "name": when,
        "showarrow": False,
        "xanchor": "right" if right else "left",
        "yanchor": "top" if right else "bottom",  # where no stair runs
        "xshift": -4 if right else 6,
        "yshift": -4 if right else 5,
        "font": {"size": 11, "color": "$ink"},
    }


def _hover(m: Moment, what: str) -> str:
    who, run = axes.label(m.submission), axes.label(m.run, 20)
    return f"{who}<br>{text.duration(m.score_ns)}<br>{what} {run}"


def _date(m: Moment) -> str | None:
    return text.rfc3339(m.created_ns)


def _few(moments: Sequence[Moment], count: int) -> list[Moment]:
    """Evenly taken, the first and the last always among them."""
    if len(moments) <= count:
        return list(moments)
    step = (len(moments) - 1) / (count - 1)
    return [moments[round(i * step)] for i in range(count)]


def _score(row: Summary) -> float:
    return row.score_ns if row.score_ns is not None else math.inf
