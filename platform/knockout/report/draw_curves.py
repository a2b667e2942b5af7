"""Draws a metric over training: one line a variant, a band for its seeds, floors, crosses where runs
diverged.

The invariant: an exploding run never squeezes the others flat; it leaves through the top of the picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes

from knockout.report.canvas import drawing, panels, plain_ticks, short, svg
from knockout.report.palette import INK, Style

_HEADROOM = 0.06


def draw_curves(chart: Mapping[str, Any], *, key: str, styles: Mapping[str, Style]) -> str:
    """The chart as inline SVG; its table has size, variant, tokens, mean, low, high."""
    table = pl.DataFrame(chart["table"])
    marks = pl.DataFrame(chart["marks"], schema={"size": pl.String, "variant": pl.String, "tokens": pl.Int64})
    sizes = table["size"].unique(maintain_order=True).to_list()
    with drawing(key):
        figure, axes = panels(sizes if len(sizes) > 1 else [""], height=3.6)
        for panel, size in zip(axes, sizes, strict=True):
            rows = table.filter(pl.col("size") == size)
            _lines(panel, rows=rows, styles=styles)
            here = marks.filter(pl.col("size") == size)
            calm = rows.filter(~pl.col("variant").is_in(here["variant"].implode()))
            _limits(panel, rows=rows, calm=calm, floors=chart["floors"].get(size, {}), scale=chart["scale"])
            _crosses(panel, rows=rows, marks=here, styles=styles)
            _floors(panel, floors=chart["floors"].get(size, {}))
            panel.set_xlabel("training tokens")
            panel.set_ylabel(chart["unit"])
        return svg(figure, key=key, label=chart["title"])


def _lines(panel: Axes, *, rows: pl.DataFrame, styles: Mapping[str, Style]) -> None:
    for name, style in styles.items():
        line = rows.filter(pl.col("variant") == name)
        if line.is_empty():
            continue
        x = line["tokens"].to_numpy()
        panel.fill_between(x, line["low"].to_numpy(), line["high"].to_numpy(), color=style.color, alpha=0.18, linewidth=0)
        dots = "o" if len(line) < 3 else ""
        panel.plot(x, line["mean"].to_numpy(), color=style.color, linestyle=style.dash, linewidth=1.7, marker=dots)


def _crosses(panel: Axes, *, rows: pl.DataFrame, marks: pl.DataFrame, styles: Mapping[str, Style]) -> None:
    """A cross where a run diverged: on the variant's line, or on the edge through which the line left."""
    top = panel.get_ylim()[1]
    for variant, tokens in marks.select("variant", "tokens").iter_rows():
        before = rows.filter((pl.col("variant") == variant) & (pl.col("tokens") <= tokens))
        if not before.is_empty():
            x, y = before.select("tokens", "mean").row(-1)
            cross = {"marker": "x", "markersize": 9, "markeredgewidth": 2.2, "clip_on": False}
            panel.plot([x], [min(y, top)], color=styles[variant].color, **cross)


def _limits(panel: Axes, *, rows: pl.DataFrame, calm: pl.DataFrame, floors: Mapping[str, float], scale: str) -> None:
    """Room for every line that did not diverge (`calm`), for where all began, and for the floors."""
    panel.xaxis.set_major_formatter(plain_ticks(short))
    panel.set_xlim(0, max(1, *rows["tokens"]))
    if scale == "log":
        panel.set_yscale("log")
    begun = rows.filter(pl.col("tokens") == pl.col("tokens").min().over("variant"))
    top = max(*begun["mean"], *calm["mean"], *floors.values())
    bottom = min(*rows["low"], *floors.values(), top)
    room = _HEADROOM * (top - bottom) or 1.0
    panel.set_ylim(bottom / 1.2 if scale == "log" else bottom - room, top + room)
    panel.yaxis.set_major_formatter(plain_ticks(short))


def _floors(panel: Axes, *, floors: Mapping[str, float]) -> None:
    for name, loss in floors.items():
        panel.axhline(loss, color=INK, linestyle=(0, (5, 4)), linewidth=1.0, alpha=0.55)
        panel.annotate(
            f"{name} {loss:.3g}",
            (1.0, loss),
            xycoords=("axes fraction", "data"),
            xytext=(4, -3),
            textcoords="offset points",
            annotation_clip=False,
            fontsize=9,
            alpha=0.75,
        )
