"""Which charts a report has, in which order: the declaration in dashboards/report.yaml.

The invariant: a chart is one entry there. A new kind of chart is one member of the union below, one
function that makes its table (`charts.tabulate`) and one that draws it (`charts.draw`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from knockout import project
from knockout.declare.base import Declaration, Positive
from knockout.declare.document import read_document
from knockout.declare.problems import problems
from knockout.errors import DeclarationError, InputError


class _Titled(Declaration):
    """What every chart has."""

    title: str
    """The chart's heading."""
    note: str = ""
    """One sentence on how to read it."""


class Curves(_Titled):
    """A metric over training, one line a variant, with the band that its seeds span."""

    kind: Literal["curves"]
    """curves."""
    metric: str
    """The metric's name in the runs' metric files."""
    floors: bool = False
    """Draw the corpus' floors as dashed lines; for losses in nats per token."""
    scale: Literal["linear", "log"] = "linear"
    """Vertical axis."""
    points: Positive = 300
    """Longer curves are averaged over this many equal stretches of steps."""
    only_if_seeing: bool = False
    """Leave the chart out where no model sees the future."""


class ParameterSplit(_Titled):
    """Parameters by part, one stacked bar a variant."""

    kind: Literal["parameters"]
    """parameters."""


class Layers(_Titled):
    """A per-block metric against depth, at the first and the last evaluation."""

    kind: Literal["layers"]
    """layers."""
    metric: Literal["gradient_norm", "activation_rms", "update_ratio", "routing_entropy", "expert_load_max"] = (
        "gradient_norm"
    )
    """What is shown of each block; the last two are those of mixtures of experts, and the chart is absent without any."""
    scale: Literal["linear", "log"] = "log"
    """Vertical axis."""
    at: Annotated[tuple[Literal["first", "last"], ...], Field(min_length=1)] = ("first", "last")
    """Evaluations to show."""


class Searches(_Titled):
    """Loss against each tuned setting, one line a variant; absent where nothing was tuned."""

    kind: Literal["tuning"]
    """tuning."""


Chart = Annotated[Curves | ParameterSplit | Layers | Searches, Field(discriminator="kind")]
"""One chart of a report."""


class Dashboard(Declaration):
    """The charts of a report, in order."""

    charts: list[Chart]
    """Charts, from top to bottom."""


def load_dashboard(path: Path | None = None) -> Dashboard:
    """The declared charts: of the file given, or of dashboards/report.yaml (the current project's first).

    Raises:
        DeclarationError: with every problem in the file.
        InputError: there is no such file.
    """
    found = path or project.find("dashboards", "report")
    if found is None:
        raise InputError("no dashboards/report.yaml: it declares a report's charts")
    document = read_document(found)
    try:
        return Dashboard.model_validate_json(json.dumps(document.data))
    except ValidationError as error:
        raise DeclarationError(problems(error, model=Dashboard, document=document)) from None
