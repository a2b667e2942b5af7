"""The judgement of a study: claims × sizes -> verdicts.

The invariant: statistical claims of a size stand or fall together under one alpha, and only where the
baseline is competent; identities are decided by calculation and need neither. The loss of a variant that has
learnt nothing is a bound: nothing is concluded that a larger one would undo (`shapes.bounds`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from knockout.declare.claim import Claim, Competence, Decide
from knockout.declare.expectation import Causality, Trend
from knockout.declare.metric import EXPENSES
from knockout.declare.plan import AGAIN, SHUFFLED
from knockout.judge import sentences
from knockout.judge.competence import competence_at
from knockout.judge.controls import ControlResult, aa_control, shuffled_control
from knockout.judge.judgement import Judgement
from knockout.judge.learning import Curve
from knockout.judge.noise import compared_in, noise_at
from knockout.judge.records import RunRecord
from knockout.judge.shapes.measure import measure, measure_trend
from knockout.judge.shapes.measured import Measured
from knockout.judge.statistics.looks import Look
from knockout.judge.statistics.multiple import Adjusted, holm
from knockout.judge.verdict import Outcome, SizeCompetence, Verdict, blank

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
    looks: Sequence[Look] = (),
    controls: Sequence[RunRecord] = (),
    curves: Mapping[str, Curve] | None = None,
) -> Judgement:
    """Decide every claim at every size.

    `floors` holds, for each size, the corpus' cross-entropies by name (unigram, bigram), nats per token. `future_leak`
    holds, for each (variant, size), the largest change of an earlier output when later tokens change.
    `sizes` runs from small to large. A comparison is two one-sided tests at alpha / 2 against the claim's
    threshold; p-values are Holm-adjusted over the statistical claims of a size. Trends over sizes are judged once, and are
    a family of their own. Verdicts come claim by claim, each at all sizes. `looks` are those taken so far, each with its
    level; without them, one at all seeds. `controls` are the runs whose answer is known, `curves` the baseline's losses over
    tokens at each size.
    """
    gates = {
        size: competence_at(
            size,
            competence=competence,
            records=records,
            floors=floors.get(size, {}),
            curve=(curves or {}).get(size, ()),
        )
        for size in sizes
    }
    looks = looks or [Look(frozenset(run.seed for run in records), decide.alpha, "")]
    trends = [claim for claim in claims if isinstance(claim.expect, Trend)]
    statistical = [claim for claim in claims if not isinstance(claim.expect, Causality | Trend)]
    found: dict[str, list[Verdict]] = {claim.id: [] for claim in claims}
    for size, gate in gates.items():
        identities = [claim for claim in claims if isinstance(claim.expect, Causality)]
        at_size = partial(measure, size=size, floors=floors)
        for verdict in _judge_at_looks(statistical, looks, at_size, decide=decide, records=records, gate=gate):
            found[verdict.claim].append(verdict)
        for claim in identities:
            found[claim.id].append(_judge_identity(claim, size=size, future_leak=future_leak))
    over = partial(measure_trend, sizes=list(sizes), floors=floors)
    for verdict in _judge_at_looks(trends, looks, over, decide=decide, records=records, gate=_strictest(gates)):
        found[verdict.claim].append(verdict)
    over_sizes = {claim.id for claim in trends}
    verdicts = [v for name, of in found.items() for v in (of if name in over_sizes else _noted(of))]
    return Judgement(
        verdicts=tuple(verdicts),
        competence=tuple(gates.values()),
        controls=tuple(_controls(sizes, decide=decide, judged=records, controls=controls, floors=floors)),
        noise=tuple(
            noise_at(size, records=records, metric=decide.metric, compared=compared_in(claims, metric=decide.metric))
            for size in sizes
        ),
    )


def _controls(
    sizes: Sequence[str],
    *,
    decide: Decide,
    judged: Sequence[RunRecord],
    controls: Sequence[RunRecord],
    floors: Mapping[str, Mapping[str, float]],
) -> Iterator[ControlResult]:
    again = [run for run in controls if run.variant == AGAIN]
    shuffled = [run for run in controls if run.variant == SHUFFLED]
    for size in sizes:
        if any(run.size == size for run in again):
            yield aa_control(size, judged=judged, again=again, metric=decide.metric, alpha=decide.alpha)
        if any(run.size == size for run in shuffled):
            yield shuffled_control(size, runs=shuffled, floors=floors.get(size, {}))


def _judge_at_looks(
    claims: Sequence[Claim],
    looks: Sequence[Look],
    measure_: Callable[..., Measured | Verdict],
    *,
    decide: Decide,
    records: Sequence[RunRecord],
    gate: SizeCompetence,
) -> list[Verdict]:
    """The verdicts of a family of claims: a claim that a look settles is settled, the others go on to the next one.

    Within a look Holm's correction is over the claims that are still open: were one of those settled before a true null
    hypothesis, the error was made at that look's level.
    """
    verdicts: dict[str, Verdict] = {}
    for look in looks:
        open_ = [claim for claim in claims if claim.id not in verdicts or verdicts[claim.id].outcome == "inconclusive"]
        at_look = decide.model_copy(update={"alpha": look.alpha})
        seen = [run for run in records if run.seed in look.seeds]
        results = [measure_(claim, decide=at_look, records=seen) for claim in open_]
        for verdict in _judge(results, alpha=look.alpha, gate=gate):
            said = f"{verdict.reason}; {look.words}" if look.words else verdict.reason
            verdicts[verdict.claim] = replace(verdict, reason=said)
    return list(verdicts.values())


def _strictest(gates: Mapping[str, SizeCompetence]) -> SizeCompetence:
    """The first size whose baseline has not learnt enough, or else the first size."""
    return next((gate for gate in gates.values() if not gate.met), next(iter(gates.values())))


def _judge(results: Sequence[Measured | Verdict], *, alpha: float, gate: SizeCompetence) -> list[Verdict]:
    """The verdicts of one family of claims, which stand or fall together."""
    measured = [result for result in results if isinstance(result, Measured)]
    adjusted = holm([result.sides.p for result in measured])
    concluded = [
        _conclude(result, adjusted=p, alpha=alpha, num_claims=len(measured), gate=gate)
        for result, p in zip(measured, adjusted, strict=True)
    ]
    return concluded + [result for result in results if isinstance(result, Verdict)]


def _conclude(measured: Measured, *, adjusted: Adjusted, alpha: float, num_claims: int, gate: SizeCompetence) -> Verdict:
    parts = [f"{measured.found}; {measured.asked}"]
    outcome: Outcome = "inconclusive"
    more_seeds = None
    if not gate.met and not _needs_no_learning(measured.verdict):
        parts.insert(0, gate.sentence)
    elif adjusted.p <= alpha:
        outcome = "supported" if measured.sides.supports else "refuted"
    elif measured.held_back is not None:
        parts.append(measured.held_back)
    else:
        if measured.sides.p <= alpha:
            parts.append(sentences.corrected(adjusted.p, num_claims=num_claims))
        more_seeds = measured.more(alpha / adjusted.factor) if measured.more is not None else None
        parts.append(sentences.UNCOUNTED if measured.more is None else sentences.more(more_seeds))
    parts += [measured.left_out] if measured.left_out else []
    return replace(
        measured.verdict,
        outcome=outcome,
        p=adjusted.p,
        reason="; ".join(parts),
        more_seeds=more_seeds,
        unlearnt=measured.held_back is not None and outcome == "inconclusive",
    )


def _needs_no_learning(verdict: Verdict) -> bool:
    """Whether a claim is about what training costs or whether it survives, and not about what is learnt."""
    return verdict.relation == "diverges" or verdict.metric in EXPENSES


def _judge_identity(claim: Claim, *, size: str, future_leak: Mapping[tuple[str, str], float]) -> Verdict:
    expect = claim.expect
    if not isinstance(expect, Causality):
        raise TypeError(f"claim {claim.id}: '{expect.relation}' is decided by runs")
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
