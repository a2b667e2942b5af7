"""Runs in a workspace with a ledger, brought to their ends one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from knockout.ledger.process import this_process
from knockout.ledger.store import Ledger, LedgerRun
from knockout.ledger.workspace import Workspace
from knockout.training.execute import Early, Execution, Limits, execute, never


class Bench:
    """Runs in a workspace with a ledger."""

    def __init__(self, laboratory: Any, ledger: Ledger) -> None:
        self.laboratory = laboratory
        self.ledger = ledger
        self.workspace: Workspace = ledger.workspace
        self.notes: list[str] = []
        """What was said of the files of the run that was executed last."""

    def ask(self, **changes: object) -> Any:
        """A run that the ledger knows."""
        run = self.laboratory.declare(self.workspace.folder / "runs", **changes)
        ask = {
            "identity": run.identity, "meaning": run.meaning, "planned_steps": run.num_steps, "flops": 1.0,
            "variant": "baseline", "size": "pico", "seed": 0, "role": "judged",
        }  # fmt: skip
        self.ledger.submit(run.identity, study="x", plan="", owner=this_process(), runs=[ask])
        return run

    def execute(
        self, run: Any, *, limits: Limits | None = None, corpus: Path | None = None, early: Early = never
    ) -> Execution:
        self.notes.clear()
        return execute(
            run.identity,
            ledger=self.ledger,
            owner=this_process(),
            nursery=self.laboratory.nursery,
            runtime=self.laboratory.runtime(corpus=corpus),
            environment={},
            limits=limits or Limits(),
            early=early,
            say=self.notes.append,
        )

    def said(self, run: Any) -> LedgerRun:
        known = self.ledger.run(run.identity)
        assert known is not None
        return known
