"""What tuning a cell came to, as plain data: every trial with its cost, the chosen values, what pruning saved.

The invariant: what a trial cost is what the ledger says of its runs, whoever asked for them; what pruning saved follows from
its decisions alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from knockout.ledger.store import LedgerRun
from knockout.report.searches import saved_share, sentence
from knockout.search.trial import Trial
from knockout.submission.bind import BoundRun

Known = Callable[[Collection[str]], list[LedgerRun]]
"""What the ledger says of runs."""


@dataclass(frozen=True)
class Cost:
    """What training took."""

    seconds: float
    tokens: int
    flops: float


def cost_of(runs: Sequence[BoundRun], *, known: Known) -> Cost:
    """What the ledger says that some runs have cost so far."""
    ended = {one.identity: one for one in known([run.identity for run in runs])}
    shares = [(run, ended[run.identity]) for run in runs if run.identity in ended]
    return Cost(
        seconds=sum(one.seconds for _, one in shares),
        tokens=sum(run.tokens * one.step // one.planned_steps for run, one in shares),
        flops=sum(run.flops * one.step / one.planned_steps for run, one in shares),
    )


@dataclass(frozen=True)
class TriedPoint:
    """A trial, and what its runs cost."""

    trial: Trial
    cost: Cost
    runs: tuple[BoundRun, ...]
    """One for each tuning seed; the later ones of a pruned trial were never run for the search."""
    reused: bool
    """Whether its runs were there before this submission."""

    def anew(self, *, known: Known, trained: frozenset[str]) -> TriedPoint:
        """The trial with what its runs have cost by now; `trained` are those that this submission trained."""
        reused = self.reused and trained.isdisjoint(run.identity for run in self.runs)
        return replace(self, cost=cost_of(self.runs, known=known), reused=reused)

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

    def anew(self, *, known: Known, trained: frozenset[str]) -> Tuned:
        """The search with what its trials have cost by now; see TriedPoint."""
        return replace(self, points=tuple(point.anew(known=known, trained=trained) for point in self.points))

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
