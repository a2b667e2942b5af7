"""What a judgement is made of.

The invariant: plain frozen data with a reason that a reader understands without the code; None where there
is no number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from knockout.declare.claim import Claim
from knockout.declare.expectation import Causality, Diverges, Expectation, Knee, Order, Threshold

ROW = " → "
"""Between the variants of a row."""

Outcome = Literal["supported", "refuted", "inconclusive", "not run"]


@dataclass(frozen=True)
class Interval:
    """A two-sided confidence interval, in the metric's unit; infinite where a threshold may lie beyond what was tried."""

    low: float
    high: float
    level: float


@dataclass(frozen=True)
class Verdict:
    """What the runs say about one claim at one size, or over all of them for a trend.

    `effect` is variant minus the other, so that a loss over zero is worse; None where a divergence leaves no number, or
    where nothing was measured. For `interaction` it is the first gap minus the second, for `order` the smallest step in the
    claimed direction, with an interval that is joint over the steps, for `trend` the slope of the gap per doubling of
    parameters; for `ratio` the ratio, for `knee` and `threshold` the x (None: beyond the last), for `diverges` the share of
    runs that diverged, for an identity the leak.
    `p` is after Holm's correction over the claims of that size. `more_seeds` estimates what would
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
    last: float | None = None
    """Of a knee, the last x that was tried, which stands for whatever lies beyond it too."""
    unlearnt: bool = False
    """Whether it is inconclusive because of cells that have learnt nothing, which no more seeds would change."""


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


def blank(claim: Claim, *, size: str, outcome: Outcome, reason: str, cost_seconds: float = 0.0) -> Verdict:
    """A verdict that carries no measurement yet."""
    about = _about(claim.expect)
    return Verdict(
        claim=claim.id,
        says=claim.says,
        variant=about.variant,
        than=about.than,
        relation=claim.expect.relation,
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


def not_run(claim: Claim, *, size: str, what: str, missing: str | None) -> Verdict:
    """A verdict for want of results, which names what is missing."""
    return blank(claim, size=size, outcome="not run", reason=f"{what}; {missing}" if missing else what)


@dataclass(frozen=True)
class _About:
    variant: str
    than: str | None = None


def _about(expect: Expectation) -> _About:
    """Who is compared with whom; a row of variants by its arrows."""
    match expect:
        case Diverges() | Causality():
            return _About(expect.variant)
        case Order():
            return _About(ROW.join(expect.along))
        case Knee():
            return _About(ROW.join(expect.along.values()))
        case Threshold():
            gaps = expect.along.values()
            return _About(ROW.join(gap.variant for gap in gaps), ROW.join(gap.than for gap in gaps))
        case _:
            return _About(expect.variant, expect.than)
