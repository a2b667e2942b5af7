"""Claims that no run of their study could answer, and those that are made twice.

The invariant: what is told here is sure before anything runs, at the line of the claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from knockout.declare.architecture import Architecture, distinct_layers, encoder_layers
from knockout.declare.claim import Claim
from knockout.declare.document import Document
from knockout.declare.expectation import Causality, Diverges, Trend
from knockout.declare.parts import MoeFeedForward
from knockout.declare.plan import Cell
from knockout.declare.problems import not_among
from knockout.declare.statement import Statement, statement
from knockout.declare.study import Study
from knockout.errors import Problem


def trends_of_one_size(study: Study, *, document: Document) -> list[Problem]:
    """Claims about a change with size in a study that names one size."""
    if len(study.size_names) != 1:
        return []
    rule = "a trend is over sizes, and this study names one: give two or more, as `sizes: [pico, nano]`"
    trends = [index for index, claim in enumerate(study.claims) if isinstance(claim.expect, Trend)]
    return [_problem(document, index, ("is",), rule) for index in trends]


def judged_on_one_seed(study: Study, *, document: Document) -> list[Problem]:
    """Claims about runs in a study whose file asks for one seed."""
    asked = [claim.id for claim in study.claims if not isinstance(claim.expect, Causality)]
    if len(study.seed_list) > 1 or not asked or "settle" in document.data:
        return []
    mark = document.mark(("seeds",))
    rule = f"one seed has no spread, and cannot judge {', '.join(asked)}: give two or more; `--seeds 1` only tries the study"
    return [Problem(mark.file, mark.line, mark.column, "seeds", rule)]


def unknown_variants(study: Study, *, document: Document, known: Sequence[str]) -> list[Problem]:
    """Names in claims that are no variant's."""
    return [
        _problem(document, index, place, not_among(name, what="a variant of this study", allowed=known))
        for index, claim in enumerate(study.claims)
        for place, name in claim.expect.named.items()
        if name not in known
    ]


def claims_made_twice(study: Study, *, document: Document, cells: Sequence[Cell]) -> list[Problem]:
    """Claims that state what one before them states."""
    stated: dict[Statement, Claim] = {}
    found = []
    for index, (claim, said) in enumerate(statements(study, cells=cells)):
        first = stated.setdefault(said, claim)
        if first is not claim:
            rule = f"'{claim.id}' expects the same as '{first.id}', and each would take its share of alpha: keep one of them"
            found.append(_problem(document, index, (), rule))
    return found


def unrecorded_metrics(study: Study, *, document: Document, cells: Sequence[Cell]) -> list[Problem]:
    """Claims on how a router spreads its tokens, of variants that have no router at any size."""
    routed = {cell.variant for cell in cells if has_experts(cell.architecture)}
    found = []
    for index, claim in enumerate(study.claims):
        expect = claim.expect
        if isinstance(expect, Diverges | Causality) or expect.metric != "routing_entropy":
            continue
        known = {cell.variant for cell in cells}
        without = [name for name in dict.fromkeys(expect.named.values()) if name in known - routed]
        if without:
            rule = f"{' and '.join(without)} would never record routing_entropy: there is no layer with `ffn: {{kind: moe}}`"
            found.append(_problem(document, index, ("metric",), rule))
    return found


def statements(study: Study, *, cells: Sequence[Cell]) -> Iterator[tuple[Claim, Statement]]:
    """Every claim of a study with what it states."""
    seeing = {cell.variant for cell in cells if not cell.architecture.predicts_next}
    yield from ((claim, statement(claim.expect, decide=study.decide, seeing=seeing)) for claim in study.claims)


def has_experts(architecture: Architecture) -> bool:
    """Whether a layer is a mixture of experts."""
    layers = [*encoder_layers(architecture), *(distinct_layers(architecture) if architecture.depth else ())]
    return any(isinstance(layer.ffn, MoeFeedForward) for layer in layers)


def _problem(document: Document, claim: int, place: tuple[str | int, ...], rule: str) -> Problem:
    """What is wrong with a claim's expectation, at a place in it."""
    path = ("claims", claim, "expect", *place)
    mark = document.mark(path)
    return Problem(mark.file, mark.line, mark.column, ".".join(map(str, path)), rule)
