"""Claims that a variant diverges: how many of its runs did.

The invariant: every result counts, and nothing but results does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from knockout.declare.claim import Claim
from knockout.declare.expectation import Diverges
from knockout.judge import sentences
from knockout.judge.records import RESULTS, RunRecord, of_cell
from knockout.judge.shapes.measured import Measured
from knockout.judge.shapes.observed import missing
from knockout.judge.statistics.binomial import Share
from knockout.judge.statistics.evidence import over
from knockout.judge.statistics.planning import more_for_share
from knockout.judge.verdict import Interval, Verdict, blank, not_run

MORE_THAN_HALF = 0.5


def measure_share(
    expect: Diverges, *, claim: Claim, size: str, alpha: float, records: Sequence[RunRecord]
) -> Measured | Verdict:
    """The evidence on more than half of a variant's runs diverging."""
    cell = of_cell(records, variant=expect.variant, size=size)
    results = [run for run in cell.values() if run.state in RESULTS]
    gaps = missing({(expect.variant, size): cell}, metric=None)
    if len(results) < 2:
        what = f"whether {expect.variant} diverges at {size} needs two results and has {len(results)}"
        return not_run(claim, size=size, what=what, missing=gaps)
    seen = Share(count=sum(run.state == "diverged" for run in results), total=len(results))
    interval = Interval(*seen.interval(level=1.0 - alpha), 1.0 - alpha)
    verdict = replace(
        blank(claim, size=size, outcome="inconclusive", reason=""),
        effect=seen.mean,
        interval=interval,
        num_seeds=len(results),
        metric="share diverged",
        threshold=MORE_THAN_HALF,
        cost_seconds=sum(run.seconds for run in results),
    )
    return Measured(
        verdict,
        over(seen, threshold=MORE_THAN_HALF),
        found=sentences.share(expect.variant, seen=seen, interval=interval),
        asked="the claim asked for more than half",
        more=lambda at: more_for_share(seen, threshold=MORE_THAN_HALF, alpha=at),
        left_out=gaps,
    )
