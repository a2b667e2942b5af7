"""Several looks at one study: no more wrong conclusions than alpha, and a claim once settled stays settled."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from knockout.declare.claim import Claim, Competence, Decide
from knockout.judge import Judgement, RunRecord, decide
from knockout.judge.statistics.looks import declared_looks

MakeCell = Callable[..., list[RunRecord]]
MakeClaim = Callable[..., Claim]
LOOKS = (3, 6, 12)


def judged(claims: list[Claim], records: list[RunRecord], *, taken: int, alpha: float = 0.05) -> Judgement:
    seeds = [range(count) for count in LOOKS[:taken]]
    return decide(
        claims,
        decide=Decide(alpha=alpha),
        competence=Competence(floor="none"),
        records=records,
        floors={},
        future_leak={},
        sizes=["nano"],
        looks=declared_looks(seeds, num_declared=len(LOOKS), last=LOOKS[-1], alpha=alpha),
    )


def test_three_looks_at_nothing_mislead_no_more_often_than_alpha(cell: MakeCell, claim: MakeClaim):
    random = np.random.default_rng(1)
    studies, alpha = 1200, 0.1
    claims = [claim("worse")]
    misled = 0
    for _ in range(studies):
        losses = random.normal(4.0, 0.02, (2, LOOKS[-1]))
        records = [*cell("baseline", losses[0].tolist()), *cell("v", losses[1].tolist())]
        (verdict,) = judged(claims, records, taken=3, alpha=alpha).verdicts
        misled += verdict.outcome != "inconclusive"
    noise = 3 * math.sqrt(alpha * (1 - alpha) / studies)
    assert alpha / 2 < misled / studies < alpha + noise  # the levels of looks add up, so a bound that is not far off


def test_a_claim_that_the_first_look_settles_is_not_unsettled_by_later_seeds(cell: MakeCell, claim: MakeClaim):
    clear = [4.5, 4.51, 4.49] + [3.0] * 9
    records = [*cell("baseline", [4.0, 4.01, 4.0] + [4.0] * 9), *cell("v", clear)]
    (verdict,) = judged([claim("worse")], records, taken=3).verdicts
    assert (verdict.outcome, verdict.num_seeds) == ("supported", 3)
    assert "look 1 of 3 at level 0.0125" in verdict.reason


def test_the_level_of_a_look_is_its_share_of_the_seeds(cell: MakeCell, claim: MakeClaim):
    differences = [0.02, 0.05, 0.03, 0.04, 0.03, 0.035]
    records = [*cell("baseline", [4.0] * 6), *cell("v", [4.0 + d for d in differences])]
    first, second = (judged([claim("worse")], records, taken=taken).verdicts[0] for taken in (1, 2))
    assert (first.outcome, first.num_seeds) == ("inconclusive", 3)  # t = 3.78 with 2 degrees: p = 0.063
    assert first.p == pytest.approx(0.0634, abs=5e-4)
    assert (second.outcome, second.num_seeds) == ("supported", 6)
    assert second.interval is not None
    assert second.interval.level == pytest.approx(1 - 0.05 * 3 / 12)
