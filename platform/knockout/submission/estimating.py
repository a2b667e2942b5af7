"""How long a run of a cell will take: from runs of its shape, from a calibration, or from a closed form.

The invariant: what was measured is taken as it is; only cells of which nothing is known go by the closed form, scaled by
what it missed for the others.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from knockout.account import count
from knockout.declare.architecture import Architecture, at_layer
from knockout.declare.parts import MoeFeedForward, NextTokenObjective
from knockout.declare.plan import Cell
from knockout.declare.tune import HyperbandPruner, NoPruner, Tune
from knockout.ledger.speeds import Speed, shape

PASS_SECONDS = 0.002
"""A training pass beside its blocks and its arithmetic: Lightning's loop, embedding, loss, optimiser."""
BLOCK_SECONDS = 0.0015
"""What a training pass takes for each block beside its arithmetic."""
MIXTURE_SECONDS = 0.008
"""What a training pass takes for a mixture of experts more than for a dense part: its dispatch, and many small products."""
FLOPS_PER_SECOND = 1.0e11
"""Of one core in float32."""
FORWARD_SHARE = 1.0 / 3.0
"""Of a training pass, an evaluation's: forward, of forward and twice as much backward."""
START_SECONDS = 0.5
CHECKPOINT_SECONDS = 0.02
WINDOWS_AT_ONCE = 32
GENERATION_WINDOWS = 16
"""Windows whose prefixes are run by themselves, where tokens see later ones."""
END_SECONDS = 0.4
"""From a run's last step to the start of the next run in its slot: sealing, the ledger, the next process."""


@dataclass(frozen=True)
class Pace:
    """How long a cell's runs take, and how that is known."""

    speed: Speed
    measured: bool


def whole_trials(left: int, *, tune: Tune) -> float:
    """How many trial runs to their ends take as long as the last `left` ones of a search.

    Pruning waits for the first trials. Each later one may end anywhere from the step on at which it may be pruned, or go to
    its end; nobody knows before, and it counts with the middle.
    """
    pruner = tune.pruner
    if isinstance(pruner, NoPruner):
        return left
    startup = 1 if isinstance(pruner, HyperbandPruner) else pruner.startup
    whole = min(left, max(0, startup * tune.seeds - (tune.trials * tune.seeds - left)))
    return whole + (left - whole) * (1.0 + pruner.after) / 2.0


def paces(cells: Collection[Cell], *, exam_tokens: int, known: Mapping[str, Speed]) -> dict[str, Pace]:
    """The pace of each shape among the cells."""
    modelled = {cell_shape(cell, exam_tokens=exam_tokens): closed_form(cell, exam_tokens=exam_tokens) for cell in cells}
    pairs = [(known[name], speed) for name, speed in modelled.items() if name in known]
    step = _median_ratio([(one.step_seconds, other.step_seconds) for one, other in pairs])
    evaluation = _median_ratio([(one.evaluation_seconds, other.evaluation_seconds) for one, other in pairs])
    return {
        name: Pace(known[name], measured=True)
        if name in known
        else Pace(
            Speed(speed.start_seconds, speed.step_seconds * step, speed.evaluation_seconds * evaluation), measured=False
        )
        for name, speed in modelled.items()
    }


def cell_shape(cell: Cell, *, exam_tokens: int) -> str:
    """The shape of the cell's runs, as the ledger keeps speeds by it."""
    return shape(
        {
            "architecture": cell.architecture.model_dump(mode="json"),
            "recipe": cell.recipe.model_dump(mode="json"),
            "evaluation": {"tokens": exam_tokens},
        }
    )


def run_seconds(cell: Cell, *, speed: Speed) -> float:
    """What a run of the cell takes in its slot."""
    evaluations = len(cell.recipe.evaluation_steps(context=cell.architecture.context))
    return END_SECONDS + speed.run_seconds(num_steps=cell.num_steps, num_evaluations=evaluations)


def closed_form(cell: Cell, *, exam_tokens: int) -> Speed:
    """Seconds by passes, blocks and FLOPs, with constants fitted to six shapes of `pico` on one core of an AMD EPYC."""
    architecture, recipe = cell.architecture, cell.recipe
    context, flops = architecture.context, count(architecture).flops_per_token
    a_pass = PASS_SECONDS + BLOCK_SECONDS * architecture.depth + MIXTURE_SECONDS * _num_mixtures(architecture)
    step = recipe.accumulate * a_pass + recipe.batch * context * flops.training / FLOPS_PER_SECOND
    once = FORWARD_SHARE * a_pass * exam_tokens / (WINDOWS_AT_ONCE * context)
    evaluation = CHECKPOINT_SECONDS + once + exam_tokens * flops.forward / FLOPS_PER_SECOND
    if not (architecture.causal and isinstance(architecture.objective, NextTokenObjective)):
        tokens = GENERATION_WINDOWS * context * (context + 1) / 2
        evaluation += FORWARD_SHARE * a_pass * context + tokens * flops.forward / FLOPS_PER_SECOND
    return Speed(START_SECONDS, step, evaluation)


def _num_mixtures(architecture: Architecture) -> int:
    layers = (at_layer(architecture, layer=layer) for layer in range(architecture.depth))
    return sum(isinstance(layer.ffn, MoeFeedForward) for layer in layers)


def _median_ratio(pairs: Collection[tuple[float, float]]) -> float:
    return statistics.median(measured / modelled for measured, modelled in pairs) if pairs else 1.0
