"""Result files that no longer say what the ledger recorded when they were sealed.

The invariant: the ledger decides, and the file that says otherwise is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from knockout.ledger.aside import copy_aside
from knockout.ledger.store import LedgerRun
from knockout.ledger.workspace import Workspace, write_json
from knockout.training.result import read_result
from knockout.training.spec import RESULT
from knockout.upkeep.finding import Finding


def altered(result: Mapping[str, Any], *, run: LedgerRun, workspace: Workspace) -> Iterator[Finding]:
    """A finished run's sealed result, where the ledger recorded another outcome, reason, step or metric."""
    if differences := list(_differences(result, recorded=_recorded(run))):
        path = workspace.run(run.identity) / RESULT
        what = f"it does not say what the ledger recorded: {'; '.join(differences)}"
        remedy = "writes it as the ledger has it, and keeps a copy in lost+found/"
        repair = partial(_write_again, run, workspace=workspace, why=what)
        yield Finding("altered result", str(path.relative_to(workspace.folder)), what, remedy, repair)


def _recorded(run: LedgerRun) -> dict[str, Any]:
    """What the ledger has of a result, under the names of the result file."""
    return {"outcome": run.state, "reason": run.reason, "step": run.step, "metrics": run.metrics}


def _differences(result: Mapping[str, Any], *, recorded: Mapping[str, Any]) -> Iterator[str]:
    """`val_loss is 3, not 4.0`, for each value that is not the same; NaN is NaN."""
    said, known = _flat(result), _flat(recorded)
    for name in sorted({*said, *known}):
        if json.dumps(said.get(name)) != json.dumps(known.get(name)) and said.get(name) != known.get(name):
            yield f"{name} is {json.dumps(said.get(name))}, not {json.dumps(known.get(name))}"


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    metrics = values.get("metrics")
    heads = {name: values.get(name) for name in ("outcome", "reason", "step")}
    return {**heads, **(metrics if isinstance(metrics, dict) else {})}


def _write_again(run: LedgerRun, *, workspace: Workspace, why: str) -> None:
    path = workspace.run(run.identity) / RESULT
    if (result := read_result(path.parent)) is not None:
        copy_aside(path, workspace=workspace, why=why)
        write_json(path, data={**result, **_recorded(run)})
