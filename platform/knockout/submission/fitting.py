"""A table that is read on any terminal.

The invariant: nothing is cut off, and no text is read as markup. Where the columns that stay whole have no room, each row is
told in lines of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import StyleType
from rich.table import Column, Table
from rich.text import Text

LEAST = 16
"""Characters of a line in a column that wraps, before the table is given up."""
MARGIN = 2
"""Columns that a cell takes beside its text, with those of its neighbour 3."""


class Fitting(Table):
    """A table whose columns stay whole, but for those that wrap, or else each row as lines: `column  value`."""

    def add_row(
        self, *renderables: RenderableType | None, style: StyleType | None = None, end_section: bool = False
    ) -> None:
        """Add a row; words in square brackets are words."""
        cells = [Text(cell) if isinstance(cell, str) else cell for cell in renderables]
        super().add_row(*cells, style=style, end_section=end_section)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, or the lines."""
        if sum(map(_room, self.columns)) + (MARGIN + 1) * len(self.columns) - 1 <= options.max_width:
            yield from super().__rich_console__(console, options)
        else:
            yield from self._lines()

    def _lines(self) -> Iterator[Text]:
        """The first column's value heads the lines of its row; what is empty is left out."""
        titles = [str(column.header) for column in self.columns]
        width = max(map(cell_len, titles[1:]), default=0)
        yield Text()
        for first, *others in zip_longest(*(map(str, column.cells) for column in self.columns), fillvalue=""):
            yield Text(first, overflow="fold")
            for title, value in zip(titles[1:], others, strict=True):
                if value:
                    yield Text(f"  {title:{width}}  {value}", overflow="fold")
        yield Text()


def _room(column: Column) -> int:
    """The width that a column must have."""
    texts = [str(column.header), *map(str, column.cells)]
    longest = max(cell_len(text) for text in texts)
    return longest if column.no_wrap else max(cell_len(texts[0]), min(longest, LEAST))
