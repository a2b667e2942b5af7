"""Draws parameters by part: one stacked bar a variant, a panel a size.

The invariant: a part has one colour in every bar, and every bar ends in its total.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes

from knockout.report.canvas import drawing, panels, plain_ticks, short, svg
from knockout.report.palette import part_colors


def draw_parameters(chart: Mapping[str, Any], *, key: str) -> str:
    """The chart as inline SVG; its table has size, variant, part, parameters."""
    table = pl.DataFrame(chart["table"])
    sizes = table["size"].unique(maintain_order=True).to_list()
    bars = max(table.filter(pl.col("size") == size)["variant"].n_unique() for size in sizes)
    with drawing(key):
        figure, axes = panels(sizes if len(sizes) > 1 else [""], height=0.9 + 0.34 * bars)
        for panel, size in zip(axes, sizes, strict=True):
            _bars(panel, rows=table.filter(pl.col("size") == size), parts=chart["parts"])
        return svg(figure, key=key, label=chart["title"])


def _bars(panel: Axes, *, rows: pl.DataFrame, parts: list[str]) -> None:
    colors = part_colors(parts)
    names = rows["variant"].unique(maintain_order=True).to_list()
    ends = dict.fromkeys(names, 0)
    for variant, part, amount in rows.select("variant", "part", "parameters").iter_rows():
        panel.barh(names.index(variant), amount, left=ends[variant], height=0.66, color=colors[part])
        ends[variant] += amount
    for place, name in enumerate(names):
        panel.annotate(short(ends[name]), (ends[name], place), xytext=(4, 0), textcoords="offset points", va="center")
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.set_xlim(0, 1.12 * max(*ends.values(), 1))
    panel.grid(visible=False)
    panel.grid(visible=True, axis="x")
    panel.tick_params(axis="y", length=0)
    panel.xaxis.set_major_formatter(plain_ticks(short))
    panel.set_xlabel("parameters")
