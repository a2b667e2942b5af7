"""A plan before anything runs: what each variant costs, what differs, what there is to do, and about how long."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from knockout.account import Account, count
from knockout.corpus.prepare import Prepared, find
from knockout.declare.expand import Cell, Plan
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import Workspace
from knockout.submission.bind import bind, vocabularies

DEFAULT_FLOPS_PER_SECOND = 5e10
"""Of one core at `pico`, where no finished run tells better."""


@dataclass(frozen=True)
class CellPreview:
    """One cell of a plan."""

    variant: str
    size: str
    parameters: int
    active_parameters: int
    flops_per_token: int
    steps: int
    tokens: int
    patch: dict[str, Any]
    runs: int
    reused: int | None
    """None when the corpus is not prepared yet, and so no run has its identity."""


@dataclass(frozen=True)
class Preview:
    """A plan with its costs."""

    study: str
    question: str
    corpus: str
    corpus_prepared: bool
    cells: tuple[CellPreview, ...]
    runs_to_do: int
    core_seconds: float
    """Estimated time of the runs to do, on one core."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def preview(plan: Plan, *, base: Path, workspace: Workspace) -> Preview:
    """What the plan would do in this workspace. Prepares nothing and trains nothing."""
    prepared = {size: find(plan.corpus, vocabulary=size, folder=workspace.corpora, base=base) for size in vocabularies(plan)}
    ledger = Ledger(workspace)
    ledger.reconcile()
    done = _finished(plan, prepared=prepared, ledger=ledger)
    accounts = {_key(cell): count(cell.architecture) for cell in plan.cells}
    cells = tuple(_cell(cell, plan=plan, account=accounts[_key(cell)], done=done) for cell in plan.cells)
    rate = _flops_per_second(ledger)
    ledger.close()
    tune = plan.study.tune
    trials = tune.trials * tune.seeds if tune is not None else 0
    left = [(cell, cell.runs - (cell.reused or 0) + trials) for cell in cells]
    seconds = sum(runs * cell.flops_per_token * 3 * cell.tokens / rate for cell, runs in left)
    return Preview(
        plan.study.study,
        plan.study.question,
        plan.corpus.corpus,
        done is not None,
        cells,
        sum(runs for _, runs in left),
        seconds,
    )


def _key(cell: Cell) -> tuple[str, str]:
    return cell.variant, cell.size


def _finished(plan: Plan, *, prepared: dict[int, Prepared | None], ledger: Ledger) -> dict[tuple[str, str], int] | None:
    """For each cell the number of its runs that have a result; None before the corpus is prepared."""
    known = {size: found for size, found in prepared.items() if found is not None}
    if len(known) < len(prepared):
        return None
    bound = bind(plan, prepared=known)
    states = {run.identity: run.finished for run in ledger.runs([run.identity for run in bound])}
    done = {_key(cell): 0 for cell in plan.cells}
    for run in bound:
        done[_key(run.cell)] += states.get(run.identity, False)
    return done


def _cell(cell: Cell, *, plan: Plan, account: Account, done: dict[tuple[str, str], int] | None) -> CellPreview:
    return CellPreview(
        variant=cell.variant,
        size=cell.size,
        parameters=account.parameters.total,
        active_parameters=account.parameters.active,
        flops_per_token=account.flops_per_token.forward,
        steps=cell.num_steps,
        tokens=cell.num_steps * cell.recipe.batch * cell.architecture.context,
        patch=cell.changes,
        runs=sum(run.cell is cell for run in plan.runs),
        reused=None if done is None else done[_key(cell)],
    )


def _flops_per_second(ledger: Ledger) -> float:
    """Training FLOPs a second of one slot, from the newest finished runs."""
    rates = sorted(flops / seconds for flops, seconds in ledger.speeds(limit=20) if seconds > 0)
    return rates[len(rates) // 2] if rates else DEFAULT_FLOPS_PER_SECOND
