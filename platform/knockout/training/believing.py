"""Whether a sealed result says what was measured: for results that the ledger does not vouch for.

The invariant: the metric series, whose digest the result names, decides; it says itself of which run it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from knockout.errors import WorkspaceError
from knockout.training.metrics import Point, read_metrics, series, whose
from knockout.training.result import final_metrics
from knockout.training.spec import METRICS

CLOSE = 1e-6
"""Relative; a GPU that evaluates the last step once more may come to another last digit."""


def contradiction(folder: Path, *, result: Mapping[str, Any]) -> str | None:
    """How the sealed result of a run in `folder` differs from its own series, in words; None where it agrees.

    `result` is as `read_result` gives it: the files that it names are those that lie there.
    """
    said = result.get("metrics")
    if not isinstance(said, dict) or result.get("outcome") not in ("done", "diverged") or METRICS not in result["files"]:
        return "its result has no outcome or no metrics"
    if (stranger := foreign(folder)) is not None:
        return stranger
    try:
        table = read_metrics(folder)
    except WorkspaceError as error:
        return str(error)
    if result["outcome"] == "diverged":
        return _did_not_diverge(result, table=table)
    if result.get("step") != result.get("planned_steps"):
        return "its result says that it is done, and gives fewer steps than were planned"
    return "; ".join(_differences(said, found=_finals(table, names=said))) or None


def foreign(folder: Path) -> str | None:
    """Whose series lies in a run's folder, in words, where it is another run's."""
    owner = whose(folder / METRICS)
    return None if owner in (None, folder.name) else f"its metrics are those of run {owner}"


def _did_not_diverge(result: Mapping[str, Any], *, table: pa.Table) -> str | None:
    """Where a series goes on past the step at which its run is said to have diverged, or stops before."""
    if result["metrics"]:
        return "its result says that it diverged, and gives final values"
    finite = [point.step for point in series(table, metric="train_loss") if math.isfinite(point.value)]
    last = finite[-1] if finite else 0
    if last + 1 == result.get("step") and last < result.get("planned_steps", 0):
        return None
    return f"its result says that it diverged at step {result.get('step')}, its metrics are finite up to step {last}"


def _finals(table: pa.Table, *, names: Mapping[str, Any]) -> dict[str, float]:
    """The final values that a run's series comes to."""
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
