"""A table that is read on any terminal.

The invariant: nothing is cut off, and no text is read as markup. Where the columns that stay whole have no room, each row is
told in lines of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import StyleType
from rich.table import Column, Table
from rich.text import Text

LEAST = 16
"""Characters of a line in a column that wraps and names no width, before the table is given up."""
MARGIN = 2
"""Characters that a cell takes beside its text; a box has one more between two cells, and one at each edge."""


class Fitting(Table):
    """A table whose columns stay whole, but for those that wrap, or else each row as lines: `column  value`."""

    def add_row(
        self, *renderables: RenderableType | None, style: StyleType | None = None, end_section: bool = False
    ) -> None:
        """Add a row; words in square brackets are words."""
        cells = [Text(cell) if isinstance(cell, str) else cell for cell in renderables]
        super().add_row(*cells, style=style, end_section=end_section)

    def fits(self, width: int) -> bool:
        """Whether a terminal of so many characters has room for the columns."""
        apart = MARGIN + 1 if self.box else MARGIN
        edges = 2 if self.box else 0
        return sum(map(_room, self.columns)) + apart * (len(self.columns) - 1) + edges <= width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, or the lines."""
        if self.fits(options.max_width):
            yield from super().__rich_console__(console, options)
        else:
            yield from self._lines(console, width=options.max_width)

    def _lines(self, console: Console, *, width: int) -> Iterator[Text]:
        """The first column's value heads the lines of its row; what is empty is left out."""
        titles = [str(column.header) for column in self.columns]
        longest = max(map(cell_len, titles[1:]), default=0)
        indent = " " * (longest + 2 * MARGIN)
        yield Text()
        for first, *others in zip_longest(*(map(_text, column.cells) for column in self.columns), fillvalue=Text()):
            yield Text(first.plain, overflow="fold")
            for title, value in zip(titles[1:], others, strict=True):
                if value:
                    lines = value.wrap(console, max(width - len(indent), 1), overflow="fold")
                    yield Text.assemble(f"  {title:{longest}}  ", Text(f"\n{indent}").join(lines))
        yield self.caption if isinstance(self.caption, Text) else Text(self.caption or "")


def fitting(console: Console) -> Fitting:
    """An empty table, boxed on a terminal and aligned plain text elsewhere."""
    if console.is_terminal:
        return Fitting(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    return Fitting(box=None, pad_edge=False, header_style="", padding=(0, MARGIN, 0, 0))


def _text(cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else Text(str(cell))


def _room(column: Column) -> int:
    """The width that a column must have."""
    texts = [str(column.header), *map(str, column.cells)]
    longest = max(cell_len(text) for text in texts)
    return longest if column.no_wrap else max(cell_len(texts[0]), min(longest, column.min_width or LEAST))
