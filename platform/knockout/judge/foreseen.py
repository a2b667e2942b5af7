"""What can be said of a study's claims and variants before anything runs.

The invariant: nothing here is wrong in itself, or it would be refused; each sentence says what a reader may not have meant.
"""

from __future__ import annotations

from collections.abc import Iterator

from knockout.declare.answerable import statements
from knockout.declare.claim import Claim
from knockout.declare.expectation import Causality, Diverges, Trend
from knockout.declare.idle import same
from knockout.declare.plan import Plan
from knockout.declare.study import Study
from knockout.judge.flag import Flag
from knockout.judge.sentences import count, listed, number
from knockout.judge.shapes.share import MORE_THAN_HALF
from knockout.judge.statistics.binomial import Share
from knockout.judge.statistics.evidence import over
from knockout.judge.statistics.looks import spend


def foreseen(plan: Plan) -> Iterator[Flag]:
    """Variants that are trained by another's runs, claims of which only one can be true, claims that cannot be decided."""
    yield from _twins(plan)
    yield from _opposites(plan)
    yield from _undecidable(plan.study)


def _twins(plan: Plan) -> Iterator[Flag]:
    sizes = dict.fromkeys(cell.size for cell in plan.cells)
    for size in sizes:
        first = []
        for cell in (cell for cell in plan.cells if cell.size == size):
            twin = next((other for other in first if same(cell, other)), None)
            if twin is None:
                first.append(cell)
                continue
            name = f"{cell.variant} at {size}" if len(sizes) > 1 else cell.variant
            said = f"{name} changes nothing against {twin.variant}: both are one model, trained by the same runs"
            yield Flag("twins", "note", cell.variant, size, said)


def _opposites(plan: Plan) -> Iterator[Flag]:
    """Claims about one quantity of which only one can be true."""
    stated = [(claim, said) for claim, said in statements(plan.study, cells=plan.cells) if _is_statistical(claim)]
    for of in dict.fromkeys(said.of for _, said in stated):
        about = [(claim, said) for claim, said in stated if said.of == of]
        against = [claim for claim, said in about if any(said.excludes(other) for _, other in about)]
        if against:
            told = listed([claim.id for claim in against])
            alpha = number(plan.study.decide.alpha)
            said = f"{told} cannot all be true, and each takes its share of alpha = {alpha}, which the others would have"
            yield Flag("opposites", "note", None, None, said)


def _undecidable(study: Study) -> Iterator[Flag]:
    statistical = [claim for claim in study.claims if _is_statistical(claim)]
    if len(study.seed_list) < 2:
        if statistical:
            told = listed([claim.id for claim in statistical])
            said = f"with one seed {told} cannot be judged, for one alone has no spread: ask for two seeds or more"
            yield Flag("undecidable", "note", None, None, said)
        return
    family = [claim for claim in statistical if not isinstance(claim.expect, Trend)]
    for claim in family:
        if isinstance(claim.expect, Diverges) and (said := _too_few(claim, study=study, num_claims=len(family))) is not None:
            yield Flag("undecidable", "note", claim.expect.variant, None, said)


def _too_few(claim: Claim, *, study: Study, num_claims: int) -> str | None:
    """Why no number of divergences settles the claim by itself, and how many seeds would do; None where one does.

    The most that seeds can say is that all of them diverged, or none: p = 2 (1/2)^n, the exact binomial test at both ends.
    Holm's first step multiplies it by the number of claims; where others are decided first, by fewer.
    """
    alpha = study.decide.alpha
    looks = list(zip(study.looks, spend(study.looks, alpha=alpha), strict=True))
    seeds, level = max(looks, key=lambda look: look[1] / _unanimous(look[0]))
    p = _unanimous(seeds)
    if p * num_claims <= level:
        return None
    enough = next(n for n in range(seeds, 10_000) if _unanimous(n) * num_claims <= alpha)
    found = f"were all or none of {count(seeds, 'seed')} to diverge, p would be {number(p)}"
    would_do = f"{enough} seeds would do" if study.settle is None else f"{enough} seeds in one look would do"
    if p > level:
        return f"{claim.id} can be neither shown nor refuted: {found}, over the level {number(level)}; {would_do}"
    first = num_claims - int(level / p)
    after = f"once {first} of the other {num_claims - 1} claims {'is' if first == 1 else 'are'} decided more clearly"
    asks = f"with {num_claims} claims Holm's first step asks for {number(level / num_claims)}"
    return f"{claim.id} can be shown or refuted only {after}: {found}, and {asks}; {would_do}"


def _unanimous(seeds: int) -> float:
    """The p-value of as many seeds that all diverge."""
    return over(Share(count=seeds, total=seeds), threshold=MORE_THAN_HALF).p


def _is_statistical(claim: Claim) -> bool:
    return not isinstance(claim.expect, Causality)
