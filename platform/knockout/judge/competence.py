"""The competence gate: a comparison means nothing before the baseline has learnt what the question is
about.

The invariant: a size whose baseline is not under its floor concludes nothing, and says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from knockout.declare.claim import Competence
from knockout.judge.learning import Curve, tokens_needed
from knockout.judge.records import BASELINE, RunRecord, final_value, fitting, of_cell
from knockout.judge.sentences import count, number
from knockout.judge.verdict import SizeCompetence


def competence_at(
    size: str,
    *,
    competence: Competence,
    records: Sequence[RunRecord],
    floors: Mapping[str, float],
    curve: Curve = (),
) -> SizeCompetence:
    """Whether the baseline's mean loss over its finished seeds is far enough under the floor; nats per
    token.

    A baseline that can see the future is measured on generation_loss. It fails when most of its seeds
    diverged.
    """
    cell = of_cell(records, variant=BASELINE, size=size).values()
    metric = fitting("val_loss", runs=cell)
    values = [value for run in cell if (value := final_value(run, metric=metric)) is not None]
    finished = [value for value in values if math.isfinite(value)]
    loss = sum(finished) / len(finished) if finished else None
    floor = floors.get(competence.floor)
    met, sentence = _rule(
        size,
        competence=competence,
        floor=floor,
        loss=loss,
        diverged=len(values) - len(finished),
        total=len(values),
    )
    if not met and loss is not None and floor is not None and 2 * (len(values) - len(finished)) <= len(values):
        sentence = f"{sentence}; {_would_do(curve, target=floor - competence.by)}"
    return SizeCompetence(
        size=size,
        floor=competence.floor,
        floor_loss=floor,
        baseline_loss=loss,
        metric=metric,
        by=competence.by,
        met=met,
        sentence=sentence,
    )


def _would_do(curve: Curve, *, target: float) -> str:
    """How many tokens would likely teach it enough."""
    needed = tokens_needed(curve, target=target)
    if needed is None:
        return "how many tokens would do cannot be told from its curve"
    return f"about {needed:.1e} tokens a run would likely do, {number(needed / curve[-1][0])} times as many"


def _rule(
    size: str, *, competence: Competence, floor: float | None, loss: float | None, diverged: int, total: int
) -> tuple[bool, str]:
    name, by = competence.floor, competence.by
    if name == "none":
        return True, f"at {size} the study asks for no floor under the baseline"
    if floor is None:
        return (
            False,
            f"the corpus has no {name} floor, so nobody knows what the baseline at {size} has learnt",
        )
    if 2 * diverged > total:
        return False, f"the baseline at {size} diverged in {diverged} of {count(total, 'seed')}"
    if loss is None:
        return False, f"the baseline at {size} has no finished run"
    under = floor - loss
    side = "under" if under >= 0 else "over"
    reached = f"reaches {number(loss)}, {number(abs(under))} nats {side} the {name} floor of {number(floor)}"
    rule = f"the study asks for {number(by)} under"
    if under >= by:
        return True, f"the baseline at {size} {reached}; {rule}"
    return False, f"the baseline at {size} has not learnt enough to compare with: it {reached}; {rule}"
