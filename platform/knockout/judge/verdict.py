"""What a judgement is made of.

The invariant: plain frozen data with a reason that a reader understands without the code; None where there
is no number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from knockout.declare.claim import Claim

Outcome = Literal["supported", "refuted", "inconclusive", "not run"]


@dataclass(frozen=True)
class Interval:
    """A two-sided confidence interval, in the metric's unit."""

    low: float
    high: float
    level: float


@dataclass(frozen=True)
class Verdict:
    """What the runs say about one claim at one size.

    `effect` is variant minus the other, so over zero is worse; None where a divergence leaves no number, or
    where nothing was measured. For `diverges` it is the share of runs that diverged; for an identity, the
    leak. `p` is after Holm's correction over the claims of that size. `more_seeds` estimates what would
    settle an inconclusive claim; None when it is over 100 or unknown. `note` limits what was shown.
    `cost_seconds` is the training behind the verdict.
    """

    claim: str
    says: str
    variant: str
    than: str | None
    relation: str
    size: str
    outcome: Outcome
    effect: float | None
    interval: Interval | None
    p: float | None
    num_seeds: int
    metric: str | None
    threshold: float | None
    reason: str
    note: str | None
    more_seeds: int | None
    cost_seconds: float
    source: str | None


@dataclass(frozen=True)
class SizeCompetence:
    """Whether the baseline of a size has learnt enough for a comparison with it to mean anything."""

    size: str
    floor: str
    floor_loss: float | None
    baseline_loss: float | None
    metric: str
    by: float
    met: bool
    sentence: str


@dataclass(frozen=True)
class Judgement:
    """Every claim's verdict at every size, and what the sizes' baselines had learnt."""

    verdicts: tuple[Verdict, ...]
    competence: tuple[SizeCompetence, ...]


def blank(claim: Claim, *, size: str, outcome: Outcome, reason: str, cost_seconds: float = 0.0) -> Verdict:
    """A verdict that carries no measurement yet."""
    expect = claim.expect
    return Verdict(
        claim=claim.id,
        says=claim.says,
        variant=expect.variant,
        than=getattr(expect, "than", None),
        relation=expect.relation,
        size=size,
        outcome=outcome,
        effect=None,
        interval=None,
        p=None,
        num_seeds=0,
        metric=None,
        threshold=None,
        reason=reason,
        note=None,
        more_seeds=None,
        cost_seconds=cost_seconds,
        source=claim.source,
    )
