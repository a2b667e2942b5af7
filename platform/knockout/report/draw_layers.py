"""Draws a per-block metric against depth, one line a variant, a panel for each size and evaluation.

The invariant: all panels of a row share one vertical scale, so that first and last evaluation can be
compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from knockout.report.canvas import drawing, panels, plain_ticks, short, svg
from knockout.report.palette import Style

_MARKERS_UP_TO = 40
_TWO_DECADES = 100.0


def draw_layers(chart: Mapping[str, Any], *, key: str, styles: Mapping[str, Style]) -> str:
    """The chart as inline SVG; its table has size, variant, at, layer, mean, low, high."""
    table = pl.DataFrame(chart["table"])
    sizes = table["size"].unique(maintain_order=True).to_list()
    places = [(size, at) for size in sizes for at in chart["at"]]
    with drawing(key):
        titles = [" · ".join((*([size] if len(sizes) > 1 else []), f"{at} evaluation")) for size, at in places]
        figure, axes = panels(titles, height=3.2)
        for panel, (size, at) in zip(axes, places, strict=True):
            rows = table.filter((pl.col("size") == size) & (pl.col("at") == at))
            _lines(panel, rows=rows, styles=styles)
            _axes(panel, scale=chart["scale"], unit=chart["unit"])
        _share_scale(axes, scale=chart["scale"])
        return svg(figure, key=key, label=chart["title"])


def _lines(panel: Axes, *, rows: pl.DataFrame, styles: Mapping[str, Style]) -> None:
    for name, style in styles.items():
        line = rows.filter(pl.col("variant") == name)
        x = line["layer"].to_numpy()
        panel.fill_between(x, line["low"].to_numpy(), line["high"].to_numpy(), color=style.color, alpha=0.18, linewidth=0)
        marker = "o" if len(line) <= _MARKERS_UP_TO else ""
        panel.plot(
            x,
            line["mean"].to_numpy(),
            color=style.color,
            linestyle=style.dash,
            marker=marker,
            markersize=4,
            linewidth=1.5,
        )


def _axes(panel: Axes, *, scale: str, unit: str) -> None:
    panel.set_yscale(scale)
    panel.yaxis.set_major_formatter(plain_ticks(short))
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))
    panel.set_xlabel("block")
    panel.set_ylabel(unit)


def _share_scale(axes: list[Axes], *, scale: str) -> None:
    limits = [panel.get_ylim() for panel in axes]
    bottom, top = min(low for low, _ in limits), max(high for _, high in limits)
    for panel in axes:
        panel.set_ylim(bottom, top)
        if scale == "log":
            steps = (1.0, 2.0, 5.0) if top < _TWO_DECADES * bottom else (1.0,)
            panel.yaxis.set_major_locator(LogLocator(subs=steps, numticks=8))
            panel.yaxis.set_minor_locator(NullLocator())
