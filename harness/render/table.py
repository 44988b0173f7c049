"""A table that fits: on a narrow screen it drops whole columns instead of cutting values.

rich's own table cuts cells to the width and takes half a second for 200 rows of 16 columns, which
is twice what the rest of `harness leaderboard` takes; this one draws a line a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Span, Text

#: A value, and its style where it has one.
Cell: TypeAlias = str | tuple[str, str]

#: Untrusted names and reasons fold at this width before another column is given up.
_FOLD = 24

_GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """A heading; `order` says how much the column is worth its width (0: always, 1: least)."""

    title: str
    right: bool = False
    order: int = 0
    wrap: bool = False  # long untrusted names fold instead of widening the table


class Fitted:
    """Rows under columns, as many of them as the width allows; a column without values is left out.

    Columns of the same `order` stay or go together: one shape of three says less than none.
    """

    def __init__(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        self._columns = columns
        self._rows = rows
        self._natural = [
            max([cell_len(c.title), *(cell_len(_words(row[i])) for row in rows)])
            for i, c in enumerate(columns)
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._fit(options.max_width)
        head: list[Cell] = [(self._columns[i].title, "dim") for i in widths]
        rule = "-" if options.ascii_only else "\u2500"
        yield from self._lines(console, head, widths)
        yield Text(rule * _total(widths.values()), "dim", no_wrap=True, overflow="crop")
        for row in self._rows:
            yield from self._lines(console, [row[i] for i in widths], widths)

    def _fit(self, limit: int) -> dict[int, int]:
        """The columns that stay, and how wide each is."""
        kept = [i for i, column in enumerate(self._columns) if not column.order]
        others = [i for i in range(len(self._columns)) if i not in kept and self._filled(i)]
        for order in sorted({self._columns[i].order for i in others}, reverse=True):
            group = [i for i in others if self._columns[i].order == order]
            # What is too wide leaves its place to what is worth less.
            if _total(self._least(j) for j in (*kept, *group)) <= limit:
                kept += group
        widths = {i: self._natural[i] for i in sorted(kept)}
        # What folds gives way, the widest first, but never to nothing.
        while _total(widths.values()) > limit:
            folding = [i for i in kept if self._columns[i].wrap and widths[i] > 4]
            if not folding:
                break
            widths[max(folding, key=lambda i: widths[i])] -= 1
        return widths

    def _least(self, index: int) -> int:
        natural = self._natural[index]
        return min(natural, _FOLD) if self._columns[index].wrap else natural

    def _filled(self, index: int) -> bool:
        blank = ("", "-", "\u2013")
        return not self._columns[index].order or any(
            _words(row[index]) not in blank for row in self._rows
        )

    def _lines(
        self, console: Console, cells: Sequence[Cell], widths: dict[int, int]
    ) -> Iterator[Text]:
        """One row, several lines high where a cell folds; no spaces at the end of a line."""
        folded = [_fold(console, c, w) for c, w in zip(cells, widths.values(), strict=True)]
        for height in range(max(map(len, folded))):
            line, spans = "", []
            drawn = end = 0  # cells in `line`, and where the next column begins
            for (i, width), parts, cell in zip(widths.items(), folded, cells, strict=True):
                part = parts[height] if height < len(parts) else ""
                if part:
                    cells_wide = cell_len(part)
                    space = width - cells_wide if self._columns[i].right else 0
                    line += " " * (end + space - drawn)
                    drawn = end + space + cells_wide
                    if isinstance(cell, tuple) and cell[1]:
                        spans.append(Span(len(line), len(line) + len(part), cell[1]))
                    line += part
                end += width + _GAP
            yield Text(line, overflow="fold", spans=spans)


def _words(cell: Cell) -> str:
    return cell[0] if isinstance(cell, tuple) else cell


def _fold(console: Console, cell: Cell, width: int) -> Sequence[str]:
    words = _words(cell)
    if cell_len(words) <= width:
        return (words,)
    return [part.plain for part in Text(words).wrap(console, width)]


def _total(widths: Iterable[int]) -> int:
    known = list(widths)
    return sum(known) + _GAP * (len(known) - 1)
