"""A console that shows everything: piped, narrow, without colour, in any encoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TextIO, cast

from rich.console import Console

#: Wide enough for any line: a pipe has no width, and what reads it wants whole names.
_UNLIMITED = 100_000


class _Trimmed:
    """A stream without the blanks that rich fills the last column of a table with."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        *lines, rest = text.split("\n")  # a pattern takes the square of the blanks within a line
        self._stream.write("\n".join([*(line.rstrip(" ") for line in lines), rest]))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def make_console(stream: TextIO, env: Mapping[str, str], *, width: int | None = None) -> Console:
    """A console that never cuts, colours or crashes where it should not.

    Colour on a terminal only, unless NO_COLOR (not empty) or TERM=dumb forbids it or FORCE_COLOR
    (neither empty nor 0) demands it; NO_COLOR wins.  No width limit and no blanks at the ends of
    lines when piped.  Characters that the stream's encoding lacks come out as escapes.
    """
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    terminal = stream.isatty()
    forced = env.get("FORCE_COLOR", "") not in ("", "0")
    colour = (forced or (terminal and env.get("TERM") != "dumb")) and not env.get("NO_COLOR")
    columns = env.get("COLUMNS", "")
    if width is None and terminal and columns.isdecimal() and int(columns) > 0:
        width = int(columns)
    elif width is None and not terminal:
        width = _UNLIMITED
    return Console(
        file=stream if terminal else cast(TextIO, _Trimmed(stream)),
        width=width,
        force_terminal=terminal or forced,
        color_system=_colours(env) if colour else None,
        no_color=not colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )


def _colours(env: Mapping[str, str]) -> Literal["truecolor", "standard"]:
    return "truecolor" if env.get("COLORTERM") in ("truecolor", "24bit") else "standard"
