"""A table that fits: on a narrow screen it drops whole columns instead of cutting values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Column:
    """A heading; `order` says how early the column is given up (0: never, 1: first)."""

    title: str
    right: bool = False
    order: int = 0
    wrap: bool = False  # long untrusted names fold instead of widening the table


class Fitted:
    """Rows under columns, as many of them as the width allows; a column without values is left out.

    Columns of the same `order` go together, the rightmost first.
    """

    def __init__(self, columns: Sequence[Column], rows: Sequence[Sequence[Text]]) -> None:
        self._columns = columns
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kept = [i for i in range(len(self._columns)) if self._filled(i)]
        while True:
            table = self._table(kept)
            droppable = [i for i in kept if self._columns[i].order]
            width = Measurement.get(console, options.update(max_width=10**6), table).maximum
            if width <= options.max_width or not droppable:
                break
            kept.remove(min(droppable, key=lambda i: (self._columns[i].order, -i)))
        yield table

    def _filled(self, index: int) -> bool:
        blank = ("", "-", "\u2013")
        return not self._columns[index].order or any(
            row[index].plain not in blank for row in self._rows
        )

    def _table(self, kept: Sequence[int]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
        for i in kept:
            column = self._columns[i]
            table.add_column(
                Text(column.title),
                justify="right" if column.right else "left",
                no_wrap=not column.wrap,
                overflow="fold",
            )
        for row in self._rows:
            table.add_row(*(row[i] for i in kept))
        return table
