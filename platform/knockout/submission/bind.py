"""A plan and the prepared corpora, bound together: from here each run has its identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knockout.account import count
from knockout.corpus.manifest import Manifest
from knockout.corpus.prepare import Prepared
from knockout.declare.plan import Cell, Plan, PlannedRun
from knockout.errors import CorpusError
from knockout.ledger.identity import identity, meaning
from knockout.ledger.workspace import Workspace
from knockout.training.folder import lay_out


@dataclass(frozen=True)
class BoundRun:
    """A planned run, what it means, and the corpus that it reads."""

    planned: PlannedRun
    identity: str
    meaning: dict[str, Any]
    corpus_folder: Path

    @property
    def cell(self) -> Cell:
        """The run's cell."""
        return self.planned.cell

    @property
    def name(self) -> str:
        """How people see the run."""
        return self.planned.name

    @property
    def tokens(self) -> int:
        """Tokens of the whole training."""
        return self.cell.num_steps * self.cell.recipe.batch * self.cell.architecture.context

    @property
    def flops(self) -> int:
        """FLOPs of the whole training."""
        return self.tokens * count(self.cell.architecture).flops_per_token.training

    def ask(self) -> dict[str, Any]:
        """What the ledger is told of it."""
        return {
            "identity": self.identity,
            "meaning": self.meaning,
            "planned_steps": self.cell.num_steps,
            "flops": float(self.flops),
            "variant": self.cell.variant,
            "size": self.cell.size,
            "seed": self.planned.seed,
            "role": self.planned.role,
        }


def vocabularies(plan: Plan) -> list[int]:
    """The vocabulary sizes for which the plan needs its corpus."""
    return list(dict.fromkeys(cell.architecture.vocabulary for cell in plan.cells))


def bind(plan: Plan, *, prepared: Mapping[int, Prepared]) -> list[BoundRun]:
    """Give each run its identity, the controls' after the judged ones.

    Raises:
        CorpusError: the corpus has fewer tokens than a window, for some cell.
    """
    return [bind_run(run, prepared=prepared[run.cell.architecture.vocabulary]) for run in (*plan.runs, *plan.controls)]


def bind_run(run: PlannedRun, *, prepared: Prepared) -> BoundRun:
    """Give one run its identity; raises as `bind`."""
    manifest, architecture = prepared.manifest, run.cell.architecture
    _long_enough(manifest, context=architecture.context, name=run.name)
    data = meaning(
        architecture=architecture,
        recipe=run.cell.recipe,
        corpus=manifest.digest,
        seed=run.seed,
        evaluation={**manifest.evaluation.model_dump(mode="json"), "window": architecture.context},
    )
    return BoundRun(run, identity(data), data, prepared.folder)


def write_meanings(runs: list[BoundRun], *, workspace: Workspace) -> None:
    """Lay the canonical JSON of each run in its folder, where it does not lie there already.

    Raises:
        WorkspaceError: the disk is full, or the workspace cannot be written.
    """
    for run in runs:
        lay_out(workspace, run.identity, meaning=run.meaning)


def _long_enough(manifest: Manifest, *, context: int, name: str) -> None:
    corpus, exam = manifest.declaration, manifest.declaration.evaluation
    if context > exam.segment_tokens:
        raise CorpusError(f"{name}: the exam of corpus {corpus.corpus} {exam.too_short_for(context)}")
    if (tokens := manifest.splits.train.tokens) <= context:
        raise CorpusError(
            f"{name}: a window of {context:,} tokens does not fit the corpus {corpus.corpus}, whose train split has "
            f"{tokens:,}: give it more text or the study a smaller context"
        )
