"""From a declared chart to its table, and from the table to a picture.

The invariant: `draw` sees nothing but what `tabulate` put into the report's facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from knockout.judge.records import RunRecord
from knockout.report import figures
from knockout.report.dashboard import Chart, Curves, Layers, ParameterSplit, Searches
from knockout.report.draw_curves import draw_curves
from knockout.report.draw_layers import draw_layers
from knockout.report.draw_parameters import draw_parameters
from knockout.report.draw_tuning import MARKS, draw_tuning
from knockout.report.palette import INK, Style, part_colors

_UNITS = {
    "train_loss": "nats per token",
    "val_loss": "nats per token",
    "generation_loss": "nats per token",
    "bits_per_byte": "bits per byte",
    "gradient_norm": "gradient norm",
    "activation_rms": "root mean square",
    "update_ratio": "update / weight",
    "routing_entropy": "nats",
    "expert_load_max": "largest load / mean load",
    "tokens_per_second": "tokens per second",
    "learning_rate": "learning rate",
}


def tabulate(
    chart: Chart,
    *,
    records: Sequence[RunRecord],
    floors: Mapping[str, Mapping[str, float]],
    tuned: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any] | None:
    """A chart's facts as plain data: what is declared, and the table to draw; None when there is nothing to
    draw.
    """
    facts = chart.model_dump()
    match chart:
        case Curves():
            if chart.only_if_seeing and all(run.causal for run in records):
                return None
            table = figures.loss_curve(records, metric=chart.metric, points=chart.points)
            marks = figures.divergences(records).select("size", "variant", "tokens")
            drawn = {size: dict(by_name) for size, by_name in floors.items()} if chart.floors else {}
            facts |= {"floors": drawn, "marks": marks.to_dict(as_series=False)}
        case Layers():
            table = figures.gradient_by_layer(records, metric=chart.metric)
        case ParameterSplit():
            table = figures.parameter_split(records)
            facts["parts"] = table["part"].unique(maintain_order=True).to_list()
        case Searches():
            table = figures.trials(tuned)
    if table.is_empty():
        return None
    return facts | {"unit": _unit(chart), "table": table.to_dict(as_series=False)}


def _unit(chart: Chart) -> str:
    match chart:
        case ParameterSplit():
            return "parameters"
        case Searches():
            return "nats per token"
        case _:
            return _UNITS.get(chart.metric, chart.metric)


def draw(chart: Mapping[str, Any], *, key: str, styles: Mapping[str, Style]) -> str:
    """A chart's facts as inline SVG; `key` is unique on the page."""
    match chart["kind"]:
        case "curves":
            return draw_curves(chart, key=key, styles=styles)
        case "layers":
            return draw_layers(chart, key=key, styles=styles)
        case "parameters":
            return draw_parameters(chart, key=key)
        case "tuning":
            return draw_tuning(chart, key=key, styles=styles)
        case other:
            raise ValueError(f"no function draws charts of kind '{other}'")


def legend(chart: Mapping[str, Any], *, styles: Mapping[str, Style]) -> list[dict[str, str]]:
    """The chart's key: name, colour, and dash or mark of everything in it."""
    if chart["kind"] == "parameters":
        return [{"name": p, "color": c, "mark": "block"} for p, c in part_colors(chart["parts"]).items()]
    if chart["kind"] == "tuning":
        return [{**entry, "color": "currentColor"} for entry in MARKS]
    shown = set(chart["table"]["variant"])
    return [
        {"name": name, "color": "currentColor" if style.color == INK else style.color, "mark": style.dash}
        for name, style in styles.items()
        if name in shown
    ]
