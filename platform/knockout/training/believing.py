"""Whether a sealed result says what was measured: for results that the ledger does not vouch for.

The invariant: the metric series, whose digest the result names, decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from knockout.errors import WorkspaceError
from knockout.training.metrics import Point, read_metrics, series
from knockout.training.result import final_metrics
from knockout.training.spec import METRICS

CLOSE = 1e-6
"""Relative; a GPU that evaluates the last step once more may come to another last digit."""


def contradiction(folder: Path, *, result: Mapping[str, Any]) -> str | None:
    """How the sealed result of a run in `folder` differs from its own series, in words; None where it agrees.

    `result` is as `read_result` gives it: the files that it names are those that lie there.
    """
    said = result.get("metrics")
    if not isinstance(said, dict) or result.get("outcome") not in ("done", "diverged"):
        return "its result has no outcome or no metrics"
    if result["outcome"] == "diverged":
        return "its result says that it diverged, and gives final values" if said else None
    if METRICS not in result["files"] or result.get("step") != result.get("planned_steps"):
        return "its result says that it is done, and names no metrics or fewer steps than were planned"
    try:
        found = _finals(folder, names=said)
    except WorkspaceError as error:
        return str(error)
    return "; ".join(_differences(said, found=found)) or None


def _finals(folder: Path, *, names: Mapping[str, Any]) -> dict[str, float]:
    """The final values that a run's series comes to."""
    table = read_metrics(folder)
    points: dict[str, list[Point]] = {name: series(table, metric=name) for name in names}
    last = {name: found[-1].value for name, found in points.items() if found}
    return final_metrics(table, evaluation=last) if "train_loss" in last else last


def _differences(said: Mapping[str, Any], *, found: Mapping[str, float]) -> Iterator[str]:
    for name, value in sorted(said.items()):
        if name not in found:
            yield f"its result gives {name}, which its metrics do not have"
        elif not _same(value, found[name]):
            yield f"its result says that {name} is {value}, its metrics {found[name]}"


def _same(said: Any, found: float) -> bool:
    if not isinstance(said, int | float):
        return False
    return math.isclose(said, found, rel_tol=CLOSE) or (math.isnan(said) and math.isnan(found))
