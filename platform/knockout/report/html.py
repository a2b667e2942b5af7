"""The report as one HTML page.

The invariant: the page loads nothing from anywhere, every text in it is escaped, and a reader never finds
it half-written.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from knockout.report.canvas import short
from knockout.report.charts import draw, legend
from knockout.report.figures import FINAL_METRICS, ROUTING_METRICS
from knockout.report.forest import forest
from knockout.report.palette import INK, variant_styles
from knockout.report.reading import how_to_read
from knockout.report.searches import num_pruned, pruning_check, sentence, settings, study_saving
from knockout.report.words import duration, effect, grouped, mean_sd, megabytes, number, ratio, thousands

FILE_NAME = "report.html"


def write_html(facts: Mapping[str, Any], *, folder: Path) -> Path:
    """Write report.html into a folder, which is made if missing, in one step; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / FILE_NAME
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".report-", suffix=".html")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(render_html(facts))
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def render_html(facts: Mapping[str, Any]) -> str:
    """The page as text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "duration": duration,
        "effect": effect,
        "grouped": grouped,
        "how_to_read": how_to_read,
        "mean_sd": mean_sd,
        "megabytes": megabytes,
        "num_pruned": num_pruned,
        "number": number,
        "pruning_check": pruning_check,
        "ratio": ratio,
        "search_sentence": sentence,
        "search_settings": settings,
        "short": short,
        "study_saving": study_saving,
        "thousands": thousands,
    }
    styles = variant_styles(facts["variants"])
    final = [*FINAL_METRICS, *ROUTING_METRICS]
    recorded = [name for name in final if any(name in row["metrics"] for row in facts["finals"])]
    seeing = any(not row["causal"] for row in facts["finals"])
    charts = [
        {
            **chart,
            "svg": Markup(draw(chart, key=f"c{place}", styles=styles)),
            "legend": legend(chart, styles=styles),
        }
        for place, chart in enumerate(facts["charts"])
    ]
    return environment.get_template("page.html.j2").render(
        facts,
        drawn=charts,
        forest=forest(facts["verdicts"]),
        with_memory=any("peak_memory_bytes" in row["metrics"] for row in facts["finals"]),
        columns=[name for name in recorded if seeing or name != "generation_loss"],
        colors={name: "currentColor" if s.color == INK else s.color for name, s in styles.items()},
    )
