"""Pictures as inline SVG: the look that all charts share, and the way from a figure to text.

The invariant: the same figure gives the same bytes; a picture loads nothing, has a transparent ground and
takes its ink from the page. Matplotlib's object interface only, under one lock, because its settings are
the process's.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from knockout.report.palette import INK

_LOCK = Lock()
_PANELS_A_ROW = 2
_WIDTH_INCHES = 8.4
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": ["sans-serif"],
    "font.size": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.12,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@contextmanager
def drawing(key: str) -> Iterator[None]:
    """The shared look, for one thread at a time; `key` makes the picture's inner names its own."""
    with _LOCK, matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": key}):
        yield


def panels(titles: list[str], *, height: float, columns: int = _PANELS_A_ROW) -> tuple[Figure, list[Axes]]:
    """A figure with one panel a title, at most so many in a row; `height` in inches of a row."""
    columns = min(columns, len(titles))
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(_WIDTH_INCHES, height * rows), layout="constrained", facecolor="none")
    axes = [figure.add_subplot(rows, columns, place + 1, facecolor="none") for place in range(len(titles))]
    for panel, title in zip(axes, titles, strict=True):
        panel.set_title(title, loc="left")
    return figure, axes


def svg(figure: Figure, *, key: str, label: str) -> str:
    """The figure as one <svg> element for an HTML page; `label` is read aloud in its place."""
    buffer = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    FigureCanvasSVG(figure).print_svg(buffer, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r' (?:xmlns(?::xlink)?|version)="[^"]*"', "", text)
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2).replace("xlink:href", "href")
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{key}-", text)
    text = text.replace(INK, "currentColor")
    escaped = label.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return text.replace("<svg", f'<svg role="img" aria-label="{escaped}"', 1)


def plain_ticks(write: Callable[[float], str]) -> FuncFormatter:
    """Tick labels as plain text."""
    return FuncFormatter(lambda value, _: write(value))


def short(value: float) -> str:
    """A number in few characters: 250, 1.5k, 2M, 0.001, 1e-07."""
    for size, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"
