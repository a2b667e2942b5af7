"""From a claim and the records to its evidence, before any correction.

The invariant: runs are paired by seed; only results (done or diverged) are compared, and whatever is left
out is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from knockout.declare.claim import Claim, Decide
from knockout.declare.expectation import (
    Causality,
    Compared,
    Diverges,
    Equivalent,
    Interaction,
    Knee,
    Measurable,
    Order,
    Ratio,
    Threshold,
    Trend,
)
from knockout.declare.metric import CHEATED, LOSSES
from knockout.judge import sentences
from knockout.judge.floors import Floors, unlearnt
from knockout.judge.records import BASELINE, RunRecord, of_cell
from knockout.judge.shapes.contrast import difference, slope
from knockout.judge.shapes.located import find_knee, find_threshold
from knockout.judge.shapes.measured import Case, Measured
from knockout.judge.shapes.observed import Cell, Observed, observe
from knockout.judge.shapes.order import rank_in_order
from knockout.judge.shapes.ratio import divide
from knockout.judge.shapes.share import measure_share
from knockout.judge.shapes.single import compare, follow, interact
from knockout.judge.verdict import Verdict, blank, not_run

SIZES = " … "
"""Between the smallest and the largest size of a trend."""


def measure(claim: Claim, *, size: str, decide: Decide, records: Sequence[RunRecord], floors: Floors) -> Measured | Verdict:
    """The evidence on a statistical claim at a size, or a verdict that says why there is none.

    `floors` are the corpus' cross-entropies at each size: losses at the unigram one are bounds (`shapes.bounds`).
    """
    expect = claim.expect
    match expect:
        case Diverges():
            return measure_share(expect, claim=claim, size=size, alpha=decide.alpha, records=records)
        case Causality():
            raise TypeError(f"claim {claim.id}: '{expect.relation}' is an identity, which no run can decide")
        case Trend():
            raise TypeError(f"claim {claim.id}: a trend is measured over all sizes at once")
    cells = [(name, size) for name in expect.named.values()]
    why, observed = _observe(expect, cells=cells, decide=decide, records=records)
    if observed.num_seeds < 2:
        what = f"{_subject(expect)} at {size} needs two paired seeds and has {observed.num_seeds}"
        return not_run(claim, size=size, what=what, missing=observed.missing)
    case = Case(claim, size, observed, decide, _unlearnt(observed, decide=decide, records=records, floors=floors))
    return _because(why, _shape(expect, case=case))


def measure_trend(
    claim: Claim, *, sizes: Sequence[str], decide: Decide, records: Sequence[RunRecord], floors: Floors
) -> Measured | Verdict:
    """The evidence on a trend over sizes, from the smallest to the largest, or a verdict that says why there is none."""
    expect = claim.expect
    if not isinstance(expect, Trend):
        raise TypeError(f"claim {claim.id}: '{expect.relation}' is judged size by size")
    shown = SIZES.join(dict.fromkeys((sizes[0], sizes[-1])))
    totals = [_baseline_parameters(size, records=records) for size in sizes]
    if len({total for total in totals if total}) < 2:
        has = ", ".join(f"{size}: {total or 'no run'}" for size, total in zip(sizes, totals, strict=True))
        what = f"a trend needs baselines with two numbers of parameters or more, and has {has}"
        return blank(claim, size=shown, outcome="not run", reason=what)
    cells = [(name, size) for size in sizes for name in expect.named.values()]
    why, observed = _observe(expect, cells=cells, decide=decide, records=records)
    if observed.num_seeds < 2:
        what = f"{_subject(expect)} needs two seeds paired over {', '.join(sizes)} and has {observed.num_seeds}"
        return not_run(claim, size=shown, what=what, missing=observed.missing)
    case = Case(claim, shown, observed, decide, _unlearnt(observed, decide=decide, records=records, floors=floors))
    if not observed.finite:
        return case.undecidable(sentences.unmeasured(observed, what="a slope"))
    gaps = [difference((expect.variant, size), than=(expect.than, size)) for size in sizes]
    line = slope(gaps, at=[math.log2(total) for total in totals])
    return _because(why, follow(expect, case=case, contrast=line))


def _shape(
    expect: Compared | Equivalent | Ratio | Interaction | Order | Knee | Threshold, *, case: Case
) -> Measured | Verdict:
    match expect:
        case Compared() | Equivalent():
            return compare(expect, case=case)
        case Ratio():
            return divide(expect, case=case)
        case Interaction():
            return interact(expect, case=case)
        case Order():
            return rank_in_order(expect, case=case)
        case Knee():
            return find_knee(expect, case=case)
        case Threshold():
            return find_threshold(expect, case=case)


def _observe(
    expect: Measurable, *, cells: Sequence[Cell], decide: Decide, records: Sequence[RunRecord]
) -> tuple[str | None, Observed]:
    """The values that decide, and why when they are not of the metric that the study names."""
    metric = decide.metric if expect.metric is None else expect.metric
    runs = {cell: of_cell(records, variant=cell[0], size=cell[1]).values() for cell in cells}
    seeing = list(dict.fromkeys(name for (name, _), of in runs.items() if any(not run.causal for run in of)))
    if expect.metric is not None or metric not in CHEATED or not seeing:
        return None, observe(cells, metric=metric, records=records)
    see = "sees" if len(seeing) == 1 else "see"
    why = f"{' and '.join(seeing)} {see} the future on {metric}, so generation_loss decides"
    return why, observe(cells, metric="generation_loss", records=records)


def _unlearnt(observed: Observed, *, decide: Decide, records: Sequence[RunRecord], floors: Floors) -> frozenset[Cell]:
    """The cells whose value of what is compared is a bound, since they have learnt nothing."""
    if observed.metric not in LOSSES:
        return frozenset()
    return frozenset(unlearnt(observed.values, records=records, floors=floors, margin=decide.margin))


def _because(why: str | None, found: Measured | Verdict) -> Measured | Verdict:
    """The same, with a reason for its metric at its head."""
    if why is None:
        return found
    if isinstance(found, Measured):
        return replace(found, found=f"{why}: {found.found}")
    return replace(found, reason=f"{why}: {found.reason}")


def _subject(expect: Measurable) -> str:
    """What is compared, in words."""
    match expect:
        case Order() | Knee():
            return " against ".join(expect.named.values())
        case Threshold():
            return " and ".join(f"{gap.variant} against {gap.than}" for gap in expect.along.values())
        case Interaction(over=other):
            return f"{expect.variant} against {expect.than} and {other.variant} against {other.than}"
        case _:
            return f"{expect.variant} against {expect.than}"


def _baseline_parameters(size: str, *, records: Sequence[RunRecord]) -> int:
    """All parameters of a size's baseline; 0 without a run."""
    runs = of_cell(records, variant=BASELINE, size=size).values()
    return next((run.parameters["total"] for run in runs if run.parameters.get("total")), 0)
