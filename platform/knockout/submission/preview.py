"""A plan before anything runs: what each variant costs, what differs, what there is to do, and about how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knockout.account import count
from knockout.corpus.prepare import Prepared, find
from knockout.declare.plan import Cell, Plan
from knockout.judge.fairness import fairness
from knockout.judge.flag import Flag
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import Workspace
from knockout.submission.bind import BoundRun, bind, vocabularies
from knockout.submission.calibrating import Calibrator
from knockout.submission.duration import Duration, duration

if TYPE_CHECKING:
    from knockout.submission.tuning import Searched


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
    fairness: tuple[Flag, ...]
    """What the declaration gives a reader to weigh."""
    runs_to_do: int
    """Runs without a result, trials of searches included; equal ones count once."""
    trials_to_do: int
    duration: Duration
    """About how long the runs to do take here."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def preview(
    plan: Plan,
    *,
    base: Path,
    workspace: Workspace,
    calibrator: Calibrator | None = None,
    before: set[str] | None = None,
) -> Preview:
    """What the plan would do in this workspace. Prepares nothing; with a calibrator, times cells that are not known yet.

    `before` names the runs and searches of plans that come before this one; they are reused, and this plan's are added.
    """
    before = set() if before is None else before
    found = {size: find(plan.corpus, vocabulary=size, folder=workspace.corpora, base=base) for size in vocabularies(plan)}
    prepared = {size: known for size, known in found.items() if known is not None}
    ledger = Ledger(workspace)
    ledger.reconcile()
    known = len(prepared) == len(found)
    begun = _begun(plan, prepared=prepared if known else {}, workspace=workspace)
    tuned = plan.with_cells({key: search.cell for key, search in begun.items()})
    runs = bind(tuned, prepared=prepared) if known else []
    done = {run.identity for run in ledger.runs({run.identity for run in runs}) if run.finished}
    to_do = _to_do(tuned, runs=runs, done=done, searches=begun, before=before)
    searches = _searches(begun, before=before)
    time = duration(
        to_do,
        searches=[(search.cell, search.whole) for search in searches],
        exam_tokens=plan.corpus.evaluation.tokens,
        ledger=ledger,
        calibrator=calibrator,
        devices=plan.study.runtime.devices,
    )
    ledger.close()
    trials_to_do = sum(search.left for search in searches)
    return Preview(
        study=plan.study.study,
        question=plan.study.question,
        corpus=plan.corpus.corpus,
        corpus_prepared=known,
        cells=tuple(_cell(cell, planned=planned, runs=runs, done=done) for cell, planned in _cells(tuned)),
        fairness=tuple(fairness(plan)),
        runs_to_do=len(to_do) + trials_to_do,
        trials_to_do=trials_to_do,
        duration=time,
    )


def _begun(plan: Plan, *, prepared: Mapping[int, Prepared], workspace: Workspace) -> dict[tuple[str, str], Searched]:
    """How far the search of each cell is, where there is one."""
    tune = plan.study.tune
    if tune is None:
        return {}
    from knockout.submission.tuning import searched  # Optuna takes a second to import, and most studies search nothing

    return {
        _key(cell): searched(cell, tune=tune, prepared=prepared.get(cell.architecture.vocabulary), workspace=workspace)
        for cell in plan.cells
    }


def _to_do(
    plan: Plan,
    *,
    runs: Sequence[BoundRun],
    done: Collection[str],
    searches: Mapping[tuple[str, str], Searched],
    before: set[str],
) -> list[Cell]:
    """The cell of each different run that has no result and does not come before, to which these are added.

    While the corpus is not prepared, of every run. What a search will choose is not known before its end: until then its
    name stands for it beside a run's identity.
    """
    if not runs:
        return [run.cell for run in (*plan.runs, *plan.controls)]
    open_ = {key: search.name for key, search in searches.items() if search.left}
    named = {f"{run.identity} {open_.get(_key(run.cell))}": run.cell for run in runs if run.identity not in done}
    new = {name: cell for name, cell in named.items() if name not in before}
    before.update(new)
    return list(new.values())


def _searches(begun: Mapping[tuple[str, str], Searched], *, before: set[str]) -> list[Searched]:
    """Each different search that has trials left and does not come before, to which these are added.

    While the corpus is not prepared, none has a name, and each counts.
    """
    named = {search.name or key: search for key, search in begun.items() if search.left and search.name not in before}
    before.update(search.name for search in named.values() if search.name is not None)
    return list(named.values())


def _key(cell: Cell) -> tuple[str, str]:
    return cell.variant, cell.size


def _cells(plan: Plan) -> list[tuple[Cell, int]]:
    """Every cell with its number of runs, the controls' last."""
    runs = Counter(_key(run.cell) for run in (*plan.runs, *plan.controls))
    cells = {_key(cell): cell for cell in (*plan.cells, *(run.cell for run in plan.controls))}
    return [(cell, runs[key]) for key, cell in cells.items()]


def _cell(cell: Cell, *, planned: int, runs: Sequence[BoundRun], done: Collection[str]) -> CellPreview:
    account = count(cell.architecture)
    reused = sum(run.identity in done for run in runs if _key(run.cell) == _key(cell))
    return CellPreview(
        variant=cell.variant,
        size=cell.size,
        parameters=account.parameters.total,
        active_parameters=account.parameters.active,
        flops_per_token=account.flops_per_token.forward,
        steps=cell.num_steps,
        tokens=cell.num_steps * cell.recipe.batch * cell.architecture.context,
        patch=cell.changes,
        runs=planned,
        reused=reused if runs else None,
    )
