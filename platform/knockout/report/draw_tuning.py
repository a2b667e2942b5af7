"""Draws a search: loss against each tuned setting, one line a variant, a panel for each size and setting.

The invariant: every trial is a mark. One that was pruned is a triangle at its loss then, which is no result and joins no
line; one that diverged is a cross at the top; the chosen one wears a ring.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from knockout.report.canvas import drawing, panels, plain_ticks, short, svg
from knockout.report.palette import Style


def draw_tuning(chart: Mapping[str, Any], *, key: str, styles: Mapping[str, Style]) -> str:
    """The chart as inline SVG; its table has size, variant, path, log, value, state, loss, chosen."""
    table = pl.DataFrame(chart["table"])
    places = list(table.select("size", "path").unique(maintain_order=True).iter_rows())
    many = table["size"].n_unique() > 1
    with drawing(key):
        figure, axes = panels([f"{size} · {path}" if many else "" for size, path in places], height=3.2)
        for panel, (size, path) in zip(axes, places, strict=True):
            rows = table.filter((pl.col("size") == size) & (pl.col("path") == path)).sort("value")
            _points(panel, rows=rows, styles=styles)
            panel.set_xscale("log" if rows["log"][0] else "linear")
            panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            panel.set_xlabel(path)
            panel.set_ylabel(chart["unit"])
            panel.yaxis.set_major_formatter(plain_ticks(short))
        return svg(figure, key=key, label=chart["title"])


def _points(panel: Axes, *, rows: pl.DataFrame, styles: Mapping[str, Style]) -> None:
    for name, style in styles.items():
        mine = rows.filter(pl.col("variant") == name)
        line = mine.filter(pl.col("state") == "done")
        panel.plot(line["value"], line["loss"], color=style.color, linestyle=style.dash, marker="o", markersize=4)
        best = line.filter("chosen")
        panel.plot(best["value"], best["loss"], color=style.color, linestyle="", marker="o", markersize=11, fillstyle="none")
        pruned = mine.filter(pl.col("state") == "pruned")
        panel.plot(pruned["value"], pruned["loss"], color=style.color, linestyle="", marker="v", markersize=5, alpha=0.6)
        lost = mine.filter(pl.col("state") == "diverged")
        top = [1.0] * len(lost)
        panel.plot(lost["value"], top, color=style.color, linestyle="", marker="x", transform=panel.get_xaxis_transform())
