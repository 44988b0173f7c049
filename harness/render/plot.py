"""Figures of the page that compare the first entries on one shape, and the library that draws them.

They are built here as plain data, so that they can be tested, and drawn by page.js.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.errors import UsageError
from harness.leaderboard import is_time
from harness.model import Board, ShapeStanding, Standing
from harness.render import axes, text

#: More bars than this on one axis cannot be compared by eye; the standings hold everyone.
SHOWN = 12
#: A bar this many times longer than the shortest would flatten all others: it is cut, and says so.
CUT = 3.0


def library() -> str:
    """plotly.js, whole, to be inlined once.  UsageError says what to install when it is missing."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        remedy = "in the harness's checkout: pip install -e '.[page]'"
        raise UsageError(f"--html needs plotly; {remedy}") from None
    source: str = get_plotlyjs()
    return source


def bars(board: Board, index: int) -> axes.Figure:
    """One ranked shape: the first entries' times as bars from zero, against what is possible.

    The figures stand in a column beside the bars, where no interval runs through them.
    """
    shown = [s for s in board.standings if len(s.shapes) > index][:SHOWN]
    times = [s.shapes[index] for s in shown]
    longest = min(max(t.median_ns for t in times), CUT * min(t.median_ns for t in times))
    lines, notes = _bound_lines(_bounds(times), longest * 1.06)
    above, marks = 15 * len(notes), axes.linear_ticks(longest, parts=2)
    return axes.figure(
        [_bars(shown, times, longest)],
        {
            "height": 50 + 30 * len(shown) + above,
            "margin": {"l": 128, "r": 112, "t": 10 + above, "b": 30},
            "shapes": lines,
            "annotations": [*notes, *(_beside(row, t) for row, t in enumerate(times))],
            "xaxis": {
                "range": [0, longest * 1.06],
                "tickvals": marks,
                "ticktext": [axes.tick(v) for v in marks],
                "tickangle": 0,
                "zeroline": True,
            },
            "yaxis": axes.rows_axis([_place(s) for s in shown]),
        },
    )


def _bars(
    shown: Sequence[Standing], times: Sequence[ShapeStanding], longest: float
) -> dict[str, Any]:
    """Bars with their intervals; one beyond `longest` is cut there, with an arrow and without."""
    cut = [t.median_ns > longest * 1.0001 for t in times]
    up = [0 if c else t.high_ns - t.median_ns for t, c in zip(times, cut, strict=True)]
    down = [0 if c else t.median_ns - t.low_ns for t, c in zip(times, cut, strict=True)]
    error = {"type": "data", "symmetric": False, "array": up, "arrayminus": down}
    return {
        "type": "bar",
        "orientation": "h",
        "x": [min(t.median_ns, longest) for t in times],
        "y": list(range(len(shown))),
        "width": 0.62,
        "text": ["\u2192" if c else "" for c in cut],
        "textposition": "inside",
        "textangle": 0,
        "insidetextanchor": "end",
        "insidetextfont": {"color": ["$onaccent" if s.rank == 1 else "$onbar" for s in shown]},
        "hovertext": [
            f"{_place(s, 60)}<br>{text.duration(t.median_ns)} "
            f"{text.spread(t.low_ns, t.median_ns, t.high_ns)}"
            for s, t in zip(shown, times, strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {
            "color": ["$accent" if s.rank == 1 else "$bar" for s in shown],
            "opacity": 0.86,
        },
        "error_x": {**error, "color": "$ink", "thickness": 1.2, "width": 3},
    }


def _beside(row: int, t: ShapeStanding) -> dict[str, Any]:
    """A time and its share of the floor, right of the bars."""
    floor = _floor(t)
    share = "" if floor is None else f"  {text.percent(floor / t.median_ns)}"
    return {
        "x": 1,
        "xref": "paper",
        "y": row,
        "yref": "y",
        "text": f"<b>{text.duration(t.median_ns)}</b>{share}",
        "showarrow": False,
        "xanchor": "left",
        "xshift": 4,
        "font": {"size": 11, "color": "$ink"},
    }


def _floor(t: ShapeStanding) -> float | None:
    return t.floor_ns if is_time(t.floor_ns) else None


def _bounds(times: Sequence[ShapeStanding]) -> list[tuple[str, float, str]]:
    """What limits this shape: the device's measured floor, the contest's published bound."""
    found: list[tuple[str, float, str]] = []
    floor = next((f for t in times if (f := _floor(t)) is not None), None)
    # Published for the contest's GPU; on a processor nobody has a floor, and it says nothing.
    light = next((t.shape.light_speed_ns for t in times if _floor(t) is not None), None)
    if floor is not None:
        found.append(("floor", floor, "solid"))
    if light is not None and is_time(light):
        found.append(("speed of light", float(light), "dot"))
    return found


def _bound_lines(
    bounds: Sequence[tuple[str, float, str]], right: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    lines, notes = [], []
    for row, (name, at, dash) in enumerate(b for b in bounds if b[1] < right):
        lines.append(
            {
                "type": "line",
                "xref": "x",
                "yref": "paper",
                "layer": "below",  # the bars are translucent and carry text
                "x0": at,
                "x1": at,
                "y0": 0,
                "y1": 1,
                "line": {"color": "$warm", "width": 2, "dash": dash},
            }
        )
        left = at > right * 0.6
        notes.append(
            {
                "x": at,
                "xref": "x",
                "y": 1,
                "yref": "paper",
                "yshift": 15 * row,
                "text": f"{name} {text.duration(at, digits=3)}",
                "showarrow": False,
                "xanchor": "right" if left else "left",
                "yanchor": "bottom",
                "xshift": 4 if left else -4,
                "font": {"size": 11, "color": "$warm"},
            }
        )
    return lines, notes


def strips(
    entries: Sequence[tuple[Standing, ShapeStanding, Sequence[float]]],
) -> axes.Figure:
    """Every entry's samples of one shape around its own median, in percent, and its interval."""
    rows = [(s, t, [100 * (v / t.median_ns - 1) for v in raw]) for s, t, raw in entries]
    reach = _reach(rows)
    data: list[dict[str, Any]] = []
    for row, (_, t, values) in enumerate(rows):
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [round(v, 3) for v in values if abs(v) <= reach],
                "y": [round(row + _jitter(i), 3) for i, v in enumerate(values) if abs(v) <= reach],
                "hovertemplate": "%{x:+.2f}%<extra></extra>",
                "marker": {"size": 4.5, "color": "$point", "opacity": 0.5},
            }
        )
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": [100 * (t.low_ns / t.median_ns - 1), 0, 100 * (t.high_ns / t.median_ns - 1)],
                "y": [row, row, row],
                "hovertext": f"{text.duration(t.median_ns)} "
                f"{text.spread(t.low_ns, t.median_ns, t.high_ns)}",
                "hovertemplate": "%{hovertext}<extra></extra>",
                "line": {"color": "$ink", "width": 2},
                "marker": {
                    "symbol": ["line-ns", "diamond", "line-ns"],
                    "size": [10, 8, 10],
                    "color": "$ink",
                    "line": {"width": [2, 0, 2], "color": "$ink"},
                },
            }
        )
    return axes.figure(
        data,
        {
            "height": 64 + 34 * len(rows),
            "margin": {"l": 128, "r": 14, "t": 8, "b": 34},
            "xaxis": {
                "range": [-min(reach, 100.0) * 1.04, reach * 1.04],  # no time is 101% shorter
                "ticksuffix": "%",
                "zeroline": True,
                "nticks": 5,
            },
            "yaxis": axes.rows_axis([_place(s) for s, _, _ in rows]),
        },
    )


def _reach(rows: Sequence[tuple[Standing, ShapeStanding, Sequence[float]]]) -> float:
    """Half of the axis: all intervals, and all but the most extreme fiftieth of the samples."""
    sizes = sorted(abs(v) for _, _, values in rows for v in values)
    inner = sizes[int(0.98 * (len(sizes) - 1))] if sizes else 1.0
    widest = max(
        100 * max(t.high_ns / t.median_ns - 1, 1 - t.low_ns / t.median_ns) for _, t, _ in rows
    )
    return max(0.2, inner, widest)


def _place(s: Standing, limit: int = 15) -> str:
    return f"{axes.label(s.submission, limit)} <b>{s.rank}</b>"


def _jitter(index: int) -> float:
    """Spread points over a row evenly and always the same: bit-reversed counting."""
    return (int(f"{index % 64:06b}"[::-1], 2) / 63 - 0.5) * 0.5
