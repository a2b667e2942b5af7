"""Draws a search: a panel for each variant and setting, with the losses of its trials against what they tried.

The invariant: every trial is a mark, and only one that ran to its end stands at a loss. The others stand in the band at the
top: a pruned one hollow and pale, with the step at which it was pruned, a diverged one as a cross. The panels of a size
share their axes, and all have a line at the baseline's best.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from knockout.declare.claim import BASELINE
from knockout.report.canvas import drawing, panels, plain_ticks, short, svg
from knockout.report.palette import INK, Style

COLUMNS = 3
_HEIGHT_INCHES = 2.0
_LOSSES, _ABOVE = 0.8, 0.88
"""Shares of a panel's height: up to where losses go, and where what has no loss stands in the band over them."""
_ALONE = Style(INK, "solid")
"""Of a variant that was searched and has no run yet."""
MARKS = (
    {"name": "ran to its end", "mark": "dot"},
    {"name": "chosen", "mark": "ring"},
    {"name": "pruned at that step, no final loss", "mark": "hollow"},
    {"name": "diverged", "mark": "cross"},
    {"name": "the baseline's best", "mark": "dashed"},
)
"""The chart's key."""


def draw_tuning(chart: Mapping[str, Any], *, key: str, styles: Mapping[str, Style]) -> str:
    """The chart as inline SVG; its table has size, variant, path, log, value, state, loss, step, chosen."""
    table = _with_steps(pl.DataFrame(chart["table"]))
    places = list(table.select("size", "variant", "path").unique(maintain_order=True).iter_rows())
    columns = min(COLUMNS, len(places))
    with drawing(key):
        figure, axes = panels([""] * len(places), height=_HEIGHT_INCHES, columns=columns)
        for number, (panel, (size, variant, path)) in enumerate(zip(axes, places, strict=True)):
            here = table.filter((pl.col("size") == size) & (pl.col("path") == path)).sort("value")
            rows = here.filter(pl.col("variant") == variant)
            _baseline(panel, rows=here.filter(pl.col("variant") == BASELINE))
            _points(panel, rows=rows, style=styles.get(variant, _ALONE))
            _title(panel, rows=rows, title=_named(table, size=size, variant=variant))
            _axes(panel, rows=here, losses=table.filter(pl.col("size") == size))
            panel.set_xlabel(path if number + columns >= len(places) or table["path"].n_unique() > 1 else "")
            panel.set_ylabel(chart["unit"] if number % columns == 0 else "")
        return svg(figure, key=key, label=chart["title"])


def _with_steps(table: pl.DataFrame) -> pl.DataFrame:
    """Reports that were made before a trial's step was in the table have none."""
    return table if "step" in table.columns else table.with_columns(step=pl.lit(None, dtype=pl.Int64))


def _named(table: pl.DataFrame, *, size: str, variant: str) -> str:
    return f"{size} · {variant}" if table["size"].n_unique() > 1 else variant


def _baseline(panel: Axes, *, rows: pl.DataFrame) -> None:
    """The baseline's best loss, to hold the others against."""
    for loss in rows.filter("chosen")["loss"]:
        panel.axhline(loss, color=INK, linestyle="dashed", linewidth=0.9, alpha=0.45)


def _points(panel: Axes, *, rows: pl.DataFrame, style: Style) -> None:
    line = rows.filter(pl.col("state") == "done")
    panel.plot(line["value"], line["loss"], color=style.color, linewidth=1.3, marker="o", markersize=4)
    best = line.filter("chosen")
    panel.plot(best["value"], best["loss"], color=style.color, linestyle="", marker="o", markersize=10, fillstyle="none")
    above = panel.get_xaxis_transform()
    lost = rows.filter(pl.col("state") == "diverged")
    panel.plot(lost["value"], [_ABOVE] * len(lost), color=style.color, linestyle="", marker="x", transform=above)
    pruned = rows.filter(pl.col("state") == "pruned")
    pale = {"color": style.color, "linestyle": "", "marker": "o", "markersize": 4, "fillstyle": "none", "alpha": 0.55}
    panel.plot(pruned["value"], [_ABOVE] * len(pruned), transform=above, **pale)
    for value, step in pruned.filter(pl.col("step").is_not_null()).select("value", "step").iter_rows():
        panel.annotate(
            f"{step}",
            (value, _ABOVE),
            (0, 4),
            xycoords=above,
            textcoords="offset points",
            ha="center",
            fontsize=7,
            alpha=0.7,
        )


def _title(panel: Axes, *, rows: pl.DataFrame, title: str) -> None:
    """Whose trials, and what was chosen."""
    panel.set_title(title, loc="left", fontweight="bold", pad=16)
    for value, loss in rows.filter("chosen").select("value", "loss").iter_rows():
        panel.text(0.0, 1.03, f"best {loss:.3f} at {value:.3g}", transform=panel.transAxes, fontsize=8.5, alpha=0.8)


def _axes(panel: Axes, *, rows: pl.DataFrame, losses: pl.DataFrame) -> None:
    """The axes of a panel: of everything that was tried of its setting, and of every final loss of its size."""
    values, log = rows["value"].unique().sort().to_list(), bool(rows["log"][0])
    low, high = values[0], values[-1]
    panel.set_xscale("log" if log else "linear")
    factor, margin = max((high / low) ** 0.06, 1.05) if log else 1.0, 0.06 * (high - low) or 0.5
    panel.set_xlim(*((low / factor, high * factor) if log else (low - margin, high + margin)))
    panel.xaxis.set_major_locator(FixedLocator(sorted({low, values[len(values) // 2], high})))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
    _losses(panel, final=losses.filter(pl.col("state") == "done")["loss"].to_list())
    panel.tick_params(labelsize=8.5)


def _losses(panel: Axes, *, final: list[float]) -> None:
    """The axis of losses, and over it the band for what has none."""
    span = max(max(final) - min(final), 0.01)
    bottom, top = min(final) - 0.1 * span, max(final) + 0.1 * span
    over = bottom + (top - bottom) / _LOSSES
    panel.set_ylim(bottom, over)
    panel.axhspan(top, over, color=INK, linewidth=0, alpha=0.06)
    panel.yaxis.set_major_locator(FixedLocator([tick for tick in panel.get_yticks() if bottom <= tick <= top]))
    panel.yaxis.set_major_formatter(plain_ticks(short))
