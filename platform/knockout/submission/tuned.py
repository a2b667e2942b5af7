"""What tuning a cell came to, as plain data: every trial with its cost, the chosen values, what pruning saved.

The invariant: what a trial cost is what the ledger says of its runs, whoever asked for them; what pruning saved follows from
its decisions alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from knockout.report.searches import saved_share, sentence
from knockout.search.trial import Trial
from knockout.submission.bind import BoundRun


@dataclass(frozen=True)
class Cost:
    """What training took."""

    seconds: float
    tokens: int
    flops: float


@dataclass(frozen=True)
class TriedPoint:
    """A trial, and what its runs cost."""

    trial: Trial
    cost: Cost
    runs: tuple[BoundRun, ...]
    """One for each tuning seed; the later ones of a pruned trial were never run for the search."""
    reused: bool
    """Whether its runs were there before this submission."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data; `last` is the (step, loss) of its newest evaluation."""
        trial = asdict(self.trial)
        curve = trial.pop("curve")
        last = curve[-1] if curve else None
        identities = [run.identity for run in self.runs]
        return {**trial, "last": last, **asdict(self.cost), "identities": identities, "reused": self.reused}


@dataclass(frozen=True)
class Tuned:
    """What tuning a cell came to."""

    variant: str
    size: str
    points: tuple[TriedPoint, ...]
    chosen: dict[str, float]
    """The best trial's settings."""
    edges: dict[str, str]
    """Chosen settings at an end of what was searched, with which end."""
    log: dict[str, bool]
    """Settings whose logarithm was searched."""
    metric: str
    """What the trials went by."""

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The trials in order."""
        return tuple(point.trial for point in self.points)

    @property
    def cost(self) -> Cost:
        """Of all trials together."""
        costs = [point.cost for point in self.points]
        return Cost(sum(c.seconds for c in costs), sum(c.tokens for c in costs), sum(c.flops for c in costs))

    @property
    def sentence(self) -> str:
        """`6 trials, 1 of them beyond the range, 2 pruned: 41% of the tuning tokens saved`."""
        return sentence(self._searched)

    @property
    def _searched(self) -> dict[str, Any]:
        return {"trials": [point.to_dict() for point in self.points]}

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "variant": self.variant,
            "size": self.size,
            **self._searched,
            "chosen": self.chosen,
            "edges": self.edges,
            "log": self.log,
            "metric": self.metric,
            "cost": asdict(self.cost),
            "saved_share": saved_share([self._searched]),
            "sentence": self.sentence,
        }
