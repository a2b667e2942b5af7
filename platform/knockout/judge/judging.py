"""The judgement of a study: claims × sizes -> verdicts.

The invariant: statistical claims of a size stand or fall together under one alpha, and only where the
baseline is competent; identities are decided by calculation and need neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from knockout.declare.claim import Causality, Claim, Competence, Decide
from knockout.judge import sentences
from knockout.judge.competence import competence_at
from knockout.judge.measure import Measured, estimate, measure
from knockout.judge.multiple import Adjusted, holm
from knockout.judge.records import RunRecord
from knockout.judge.verdict import Judgement, Outcome, SizeCompetence, Verdict, blank

LEAK_TOLERANCE = 1e-6
"""The largest change of an earlier output that still counts as none: rounding, not sight."""


def decide(
    claims: Sequence[Claim],
    *,
    decide: Decide,
    competence: Competence,
    records: Sequence[RunRecord],
    floors: Mapping[str, Mapping[str, float]],
    future_leak: Mapping[tuple[str, str], float],
    sizes: Sequence[str],
) -> Judgement:
    """Decide every claim at every size.

    `floors` holds, for each size, the corpus' cross-entropies by name (unigram, bigram), nats per token. `future_leak`
    holds, for each (variant, size), the largest change of an earlier output when later tokens change.
    `sizes` runs from small to large. A comparison is two one-sided tests at alpha / 2 against the claim's
    threshold; p-values are Holm-adjusted over the statistical claims of a size. Verdicts come claim by
    claim, each at all sizes.
    """
    gates = {
        size: competence_at(size, competence=competence, records=records, floors=floors.get(size, {})) for size in sizes
    }
    statistical = [claim for claim in claims if not isinstance(claim.expect, Causality)]
    found: dict[tuple[str, str], Verdict] = {}
    for size, gate in gates.items():
        for verdict in _judge_size(statistical, size=size, decide=decide, records=records, gate=gate):
            found[verdict.claim, size] = verdict
        for claim in claims:
            if isinstance(claim.expect, Causality):
                found[claim.id, size] = _judge_identity(claim, size=size, future_leak=future_leak)
    verdicts = [v for claim in claims for v in _noted([found[claim.id, size] for size in sizes])]
    return Judgement(verdicts=tuple(verdicts), competence=tuple(gates.values()))


def _judge_size(
    claims: Sequence[Claim], *, size: str, decide: Decide, records: Sequence[RunRecord], gate: SizeCompetence
) -> list[Verdict]:
    results = [measure(claim, size=size, decide=decide, records=records) for claim in claims]
    measured = [result for result in results if isinstance(result, Measured)]
    adjusted = holm([result.sides.p for result in measured])
    concluded = [
        _conclude(result, adjusted=p, alpha=decide.alpha, num_claims=len(measured), gate=gate)
        for result, p in zip(measured, adjusted, strict=True)
    ]
    return concluded + [result for result in results if isinstance(result, Verdict)]


def _conclude(measured: Measured, *, adjusted: Adjusted, alpha: float, num_claims: int, gate: SizeCompetence) -> Verdict:
    parts = [f"{measured.found}; {measured.asked}"]
    outcome: Outcome = "inconclusive"
    more_seeds = None
    if not gate.met and measured.verdict.relation != "diverges":
        parts.insert(0, gate.sentence)
    elif adjusted.p <= alpha:
        outcome = "supported" if measured.sides.supports else "refuted"
    else:
        if measured.sides.p <= alpha:
            parts.append(sentences.corrected(adjusted.p, num_claims=num_claims))
        more_seeds = estimate(measured, alpha=alpha / adjusted.factor)
        parts.append(sentences.more(more_seeds))
    parts += [measured.left_out] if measured.left_out else []
    return replace(measured.verdict, outcome=outcome, p=adjusted.p, reason="; ".join(parts), more_seeds=more_seeds)


def _judge_identity(claim: Claim, *, size: str, future_leak: Mapping[tuple[str, str], float]) -> Verdict:
    expect = claim.expect
    leak = future_leak.get((expect.variant, size), math.nan)
    if math.isnan(leak):
        reason = f"how far later tokens move the outputs of {expect.variant} at {size} was not calculated"
        return blank(claim, size=size, outcome="not run", reason=reason)
    causal = leak <= LEAK_TOLERANCE
    change = "moves no earlier output" if causal else "moves an earlier output"
    reason = f"changing later tokens {change} of {expect.variant} (largest change {sentences.number(leak)})"
    outcome: Outcome = "supported" if causal == (expect.relation == "causal") else "refuted"
    return replace(
        blank(claim, size=size, outcome=outcome, reason=reason),
        effect=leak,
        metric="future_leak",
        threshold=LEAK_TOLERANCE,
    )


def _noted(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """A conclusion that the smallest size reaches and no larger one shares says so."""
    first, larger = verdicts[0], verdicts[1:]
    concluded = first.p is not None and first.outcome in ("supported", "refuted")
    if not concluded or any(verdict.outcome == first.outcome for verdict in larger):
        return list(verdicts)
    return [replace(first, note=f"shown at {first.size} only"), *larger]
