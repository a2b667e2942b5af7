"""From a claim and the records to its evidence, before any correction.

The invariant: runs are paired by seed; only results (done or diverged) are compared, and whatever is left
out is named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from knockout.declare.claim import Claim, Compared, Decide, Diverges, Equivalent
from knockout.judge import sentences
from knockout.judge.binomial import Share
from knockout.judge.evidence import Evidence, Sides, better, equivalent, worse
from knockout.judge.planning import more_for_interval, more_for_ranks, more_for_share
from knockout.judge.ranks import RankTest, share_worse
from knockout.judge.records import RESULTS, RunRecord, final_value, of_cell
from knockout.judge.student import PairedT, paired_t
from knockout.judge.verdict import Interval, Verdict, blank

CHEATED = ("val_loss", "bits_per_byte")
"""Metrics that a model which sees the future reads off its input."""
MORE_THAN_HALF = 0.5


@dataclass(frozen=True)
class Measured:
    """Evidence for and against one claim at one size, with the verdict that it fills in."""

    verdict: Verdict
    sides: Sides
    evidence: Evidence
    found: str
    asked: str
    left_out: str | None


@dataclass(frozen=True)
class _Pairs:
    """The seeds that both cells have results for, and a phrase for what is missing."""

    variant: tuple[RunRecord, ...]
    than: tuple[RunRecord, ...]
    missing: str | None


def measure(claim: Claim, *, size: str, decide: Decide, records: Sequence[RunRecord]) -> Measured | Verdict:
    """The evidence on a statistical claim, or a verdict of not run that names what is missing."""
    expect = claim.expect
    if isinstance(expect, Diverges):
        return _measure_share(claim, size=size, alpha=decide.alpha, records=records)
    if not isinstance(expect, Compared | Equivalent):
        raise TypeError(f"claim {claim.id}: '{expect.relation}' is an identity, which no run can decide")
    metric, why = _metric(expect, size=size, decide=decide, records=records)
    pairs = _pairs(expect, size=size, metric=metric, records=records)
    if (have := len(pairs.variant)) < 2:
        what = f"{expect.variant} against {expect.than} at {size} needs two paired seeds and has {have}"
        return _not_run(claim, size=size, what=what, missing=pairs.missing)
    measured = _compare(claim, expect, pairs=pairs, size=size, metric=metric, decide=decide)
    return replace(measured, found=f"{why}: {measured.found}") if why else measured


def estimate(measured: Measured, *, alpha: float) -> int | None:
    """How many more seeds would settle it at this alpha, as things look now."""
    evidence, verdict = measured.evidence, measured.verdict
    if isinstance(evidence, Share):
        return more_for_share(evidence, threshold=MORE_THAN_HALF, alpha=alpha)
    threshold = verdict.threshold or 0.0
    edge = -threshold if verdict.relation == "better" else threshold
    if isinstance(evidence, PairedT):
        middle = abs(evidence.mean) if verdict.relation == "equivalent" else evidence.mean
        return more_for_interval(evidence, distance=abs(middle - edge), alpha=alpha)
    if not isinstance(evidence, RankTest):
        raise TypeError(f"no estimate of seeds for {type(evidence).__name__}")
    share = share_worse([value - edge for value in evidence.variant], evidence.than)
    return more_for_ranks(share, num_pairs=verdict.num_seeds, alpha=alpha)


def _metric(
    expect: Compared | Equivalent, *, size: str, decide: Decide, records: Sequence[RunRecord]
) -> tuple[str, str | None]:
    """The metric that decides, and why when it is not the one that the study names."""
    if expect.metric is not None:
        return expect.metric, None
    names = (expect.variant, expect.than)
    cells = {name: of_cell(records, variant=name, size=size).values() for name in names}
    seeing = [name for name, runs in cells.items() if any(not run.causal for run in runs)]
    if decide.metric not in CHEATED or not seeing:
        return decide.metric, None
    see = "sees" if len(seeing) == 1 else "see"
    return (
        "generation_loss",
        f"{' and '.join(seeing)} {see} the future on {decide.metric}, so generation_loss decides",
    )


def _pairs(expect: Compared | Equivalent, *, size: str, metric: str, records: Sequence[RunRecord]) -> _Pairs:
    variant = of_cell(records, variant=expect.variant, size=size)
    than = of_cell(records, variant=expect.than, size=size)
    both = [seed for seed in variant if seed in than]
    usable = [seed for seed in both if not any(_gap(cell[seed], metric=metric) for cell in (variant, than))]
    return _Pairs(
        variant=tuple(variant[seed] for seed in usable),
        than=tuple(than[seed] for seed in usable),
        missing=_missing({expect.variant: variant, expect.than: than}, metric=metric),
    )


def _gap(record: RunRecord, *, metric: str | None) -> str | None:
    """Why a run cannot be compared, or None; without a metric any result can."""
    if record.state not in RESULTS:
        return f"{record.label} ({record.state}{f': {record.reason}' if record.reason else ''})"
    absent = metric is not None and final_value(record, metric=metric) is None
    return f"{record.label} has no {metric}" if absent else None


def _missing(cells: Mapping[str, Mapping[int, RunRecord]], *, metric: str | None) -> str | None:
    """Everything that keeps a seed from being compared, in words."""
    seeds = sorted({seed for cell in cells.values() for seed in cell})
    gaps: list[str] = []
    for name, cell in cells.items():
        found = (_gap(cell[s], metric=metric) if s in cell else f"{name} has no run at seed {s}" for s in seeds)
        gaps += [f"no run of {name}"] if not cell else [gap for gap in found if gap]
    return f"left out: {', '.join(gaps)}" if gaps else None


def _compare(
    claim: Claim, expect: Compared | Equivalent, *, pairs: _Pairs, size: str, metric: str, decide: Decide
) -> Measured:
    threshold = _threshold(expect, decide=decide)
    variant = tuple(_value(run, metric=metric) for run in pairs.variant)
    than = tuple(_value(run, metric=metric) for run in pairs.than)
    verdict = replace(
        blank(claim, size=size, outcome="inconclusive", reason=""),
        num_seeds=len(variant),
        metric=metric,
        threshold=threshold,
        cost_seconds=sum(run.seconds for run in (*pairs.variant, *pairs.than)),
    )
    if all(math.isfinite(value) for value in (*variant, *than)):
        evidence = paired_t([first - second for first, second in zip(variant, than, strict=True)])
        interval = Interval(*evidence.interval(level=1.0 - decide.alpha), 1.0 - decide.alpha)
        verdict = replace(verdict, effect=evidence.mean, interval=interval)
        found = sentences.paired(expect, seen=evidence, interval=interval, metric=metric)
    else:
        evidence = RankTest(variant=variant, than=than)
        found = sentences.ranked(expect, seen=evidence, metric=metric)
    sides = _sides(expect, evidence=evidence, threshold=threshold)
    asked = sentences.asked(expect, threshold=threshold, metric=metric)
    return Measured(verdict, sides, evidence, found, asked, pairs.missing)


def _sides(expect: Compared | Equivalent, *, evidence: Evidence, threshold: float) -> Sides:
    if isinstance(expect, Equivalent):
        sides = equivalent(evidence, margin=threshold)
    else:
        sides = (worse if expect.relation == "worse" else better)(evidence, by=threshold)
    if isinstance(evidence, PairedT) and evidence.sd == 0.0 and sides.p == 1.0:
        # Every seed lies exactly on the threshold: still within a margin, but not beyond anything.
        return Sides(0.0, 1.0) if isinstance(expect, Equivalent) else Sides(1.0, 0.0)
    return sides


def _measure_share(claim: Claim, *, size: str, alpha: float, records: Sequence[RunRecord]) -> Measured | Verdict:
    name = claim.expect.variant
    cell = of_cell(records, variant=name, size=size)
    results = [run for run in cell.values() if run.state in RESULTS]
    missing = _missing({name: cell}, metric=None)
    if len(results) < 2:
        what = f"whether {name} diverges at {size} needs two results and has {len(results)}"
        return _not_run(claim, size=size, what=what, missing=missing)
    evidence = Share(count=sum(run.state == "diverged" for run in results), total=len(results))
    interval = Interval(*evidence.interval(level=1.0 - alpha), 1.0 - alpha)
    verdict = replace(
        blank(claim, size=size, outcome="inconclusive", reason=""),
        effect=evidence.mean,
        interval=interval,
        num_seeds=len(results),
        metric="share diverged",
        threshold=MORE_THAN_HALF,
        cost_seconds=sum(run.seconds for run in results),
    )
    found = sentences.share(name, seen=evidence, interval=interval)
    sides = worse(evidence, by=MORE_THAN_HALF)
    return Measured(verdict, sides, evidence, found, "the claim asked for more than half", missing)


def _not_run(claim: Claim, *, size: str, what: str, missing: str | None) -> Verdict:
    return blank(claim, size=size, outcome="not run", reason=f"{what}; {missing}" if missing else what)


def _threshold(expect: Compared | Equivalent, *, decide: Decide) -> float:
    if isinstance(expect, Compared):
        return expect.by
    return decide.margin if expect.margin is None else expect.margin


def _value(run: RunRecord, *, metric: str) -> float:
    value = final_value(run, metric=metric)
    if value is None:
        raise ValueError(f"{run.label} has no {metric}: it cannot be paired")
    return value
