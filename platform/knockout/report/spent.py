"""What the training behind reports cost, whoever trained it and when.

The invariant: every run counts once, reused or not, also where several variants or studies share it; a trial counts in
each study that searched with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SizeReport:
    """A report's facts, of which one size is meant."""

    facts: Mapping[str, Any]
    size: str


@dataclass(frozen=True)
class Spent:
    """Training time and arithmetic."""

    num_runs: int
    num_trials: int
    seconds: float
    """Of training, over all runs and trials one after another."""
    flops: float
    """Of training, over all runs and trials."""


def spent(reports: Iterable[SizeReport]) -> Spent:
    """What the runs and trials of some reports cost together."""
    chosen = list(reports)
    runs = {run["identity"]: run for one in chosen for run in one.facts["runs"] if run["size"] == one.size}
    trials = [trial for one in chosen for search in searches(one) for trial in search["trials"]]
    costs = [*runs.values(), *trials]
    return Spent(
        num_runs=len(runs),
        num_trials=len(trials),
        seconds=sum(cost.get("seconds", 0.0) for cost in costs),
        flops=sum(cost.get("flops", 0.0) for cost in costs),
    )


def searches(report: SizeReport) -> list[Mapping[str, Any]]:
    """The searches of a report's cells of that size."""
    return [search for search in report.facts["study"].get("tuned", ()) if search["size"] == report.size]
