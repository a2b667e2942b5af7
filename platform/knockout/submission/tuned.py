"""What tuning a cell came to, as plain data: every trial with its cost, the chosen values, what pruning saved.

The invariant: what a trial cost is what the ledger says of its runs, whoever asked for them; what pruning saved follows from
its decisions, whatever an earlier search had trained already.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from knockout.search.trial import Trial


@dataclass(frozen=True)
class Cost:
    """What training took."""

    seconds: float
    tokens: int
    flops: float


@dataclass(frozen=True)
class TriedPoint:
    """A trial, what its runs cost, and what they would have cost in full."""

    trial: Trial
    cost: Cost
    full_tokens: int
    spared_tokens: int
    """Those after the step at which it was pruned; 0 where it was not."""
    identities: tuple[str, ...]
    """Of its runs, one for each tuning seed; the later ones of a pruned trial were never run."""
    reused: bool
    """Whether its runs were there before this submission."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data; `last` is the (step, loss) of its newest evaluation."""
        trial = asdict(self.trial)
        curve = trial.pop("curve")
        last = curve[-1] if curve else None
        return {**trial, "last": last, **asdict(self.cost), "identities": self.identities, "reused": self.reused}


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
    def saved_share(self) -> float:
        """Share of the tokens of all trials in full that lie after the steps at which trials were pruned."""
        return sum(point.spared_tokens for point in self.points) / sum(point.full_tokens for point in self.points)

    @property
    def sentence(self) -> str:
        """`6 trials, 1 of them beyond the range, 2 pruned: 41 % of the tuning tokens saved`."""
        beyond = sum(trial.extends is not None for trial in self.trials)
        pruned = sum(trial.state == "pruned" for trial in self.trials)
        said = f"{len(self.trials)} trials"
        said += f", {beyond} of them beyond the range" if beyond else ""
        return said + (f", {pruned} pruned: {self.saved_share:.0%} of the tuning tokens saved" if pruned else "")

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "variant": self.variant,
            "size": self.size,
            "trials": [point.to_dict() for point in self.points],
            "chosen": self.chosen,
            "edges": self.edges,
            "log": self.log,
            "cost": asdict(self.cost),
            "saved_share": self.saved_share,
            "sentence": self.sentence,
        }
