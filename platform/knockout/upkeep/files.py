"""Run folders and files that are not what the ledger says, or were never finished.

The invariant: what a living process may be writing is left alone.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from knockout.account import count
from knockout.ledger.aside import set_aside
from knockout.ledger.identity import identity
from knockout.ledger.inventory import Entry, adopt
from knockout.ledger.kinds import found
from knockout.ledger.lost import FORGOTTEN
from knockout.ledger.store import Ledger, LedgerRun
from knockout.ledger.workspace import Workspace
from knockout.training.believing import contradiction, foreign
from knockout.training.execute import DAMAGED
from knockout.training.result import read_result
from knockout.training.sharing import is_shared
from knockout.training.spec import MEANING, read_spec
from knockout.upkeep.altered import altered
from knockout.upkeep.finding import Finding
from knockout.upkeep.unfinished import TO_LOST, of_another_kind, reaches, unusable

FRESH_SECONDS = 60.0
"""A younger temporary file may be one that is being written, a younger folder one of a submission that just begins."""
_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}|\.report-[a-z0-9_]{8}\.html")
_WRITTEN = ("reports", "submissions", "history", "sweeps")


def orphans(ledger: Ledger, *, known: Mapping[str, Entry], busy: bool) -> Iterator[Finding]:
    """Run folders that the ledger does not know. One with a whole result of the run that it is named after is entered, where
    the result says what was measured; so is one that the run can go on from.

    While the workspace is `busy`, a young folder may be one that the ledger is about to be told of.
    """
    runs = ledger.workspace.folder / "runs"
    for path in sorted(runs.iterdir()):
        if path.name in known or _is_temporary(path) or (busy and _fresh(path)):
            continue
        yield _orphan(path, ledger=ledger)


def _orphan(path: Path, *, ledger: Ledger) -> Finding:
    result, meaning = read_result(path), _read(path / MEANING)
    kind, why = "orphan", "the ledger knows no such run"
    if meaning is not None and identity(meaning) == path.name:
        wrong = contradiction(path, result=result) if result is not None else None
        enter = partial(_enter, path, ledger=ledger, meaning=meaning)
        if result is not None and wrong is None:
            what, enter = "a result that the ledger does not know", partial(enter, result=result)
            return _finding(kind, path, ledger.workspace, what, "enters it", enter)
        if result is None and (step := reaches(path)):
            what = f"a run that the ledger does not know, and that goes on from step {step} where a study asks for it"
            return _finding(kind, path, ledger.workspace, what, "enters it", partial(enter, result=_unfinished(step)))
        if wrong is not None:
            kind, why = "damaged run", wrong
    move = partial(set_aside, path, workspace=ledger.workspace, why=why)
    return _finding(kind, path, ledger.workspace, why, TO_LOST, move)


def damaged_runs(ledger: Ledger, *, known: Mapping[str, Entry]) -> Iterator[Finding]:
    """Results whose files are gone or changed, and unfinished runs that could not go on from what they left."""
    recorded = {run.identity: run for run in ledger.runs(name for name, entry in known.items() if entry.finished)}
    for entry in known.values():
        folder = ledger.workspace.run(entry.identity)
        result = read_result(folder) if entry.finished else None
        if result is not None and (stranger := foreign(folder)) is not None:
            remedy = "opens the run again, and moves what lies there to lost+found/"
            repair = partial(_open_again, ledger, identity=entry.identity)
            yield _finding("damaged run", folder, ledger.workspace, stranger, remedy, repair)
        elif result is not None and entry.identity in recorded:
            yield from altered(result, run=recorded[entry.identity], workspace=ledger.workspace)
            yield from of_another_kind(folder, workspace=ledger.workspace)
        elif entry.finished and not is_shared(ledger.workspace, entry.identity):
            remedy = "opens the run again, and moves what is left of it to lost+found/"
            repair = partial(_open_again, ledger, identity=entry.identity)
            yield _finding("damaged run", folder, ledger.workspace, f"{entry.state}, but {DAMAGED}", remedy, repair)
        elif not entry.finished and not entry.held:
            yield from unusable(folder, workspace=ledger.workspace)


def half_written(workspace: Workspace, *, known: Mapping[str, Entry], busy: bool) -> Iterator[Finding]:
    """Temporary files whose writer was killed before it renamed them."""
    for path in temporary(workspace, known=known, busy=busy):
        yield _finding("half-written", path, workspace, "its writer ended before it was whole", "removes it", path.unlink)


def temporary(workspace: Workspace, *, known: Mapping[str, Entry], busy: bool) -> Iterator[Path]:
    """Files under a temporary name that nobody is writing: in the folders of runs that nobody holds, and of none that is
    young while the workspace is `busy`."""
    held = {workspace.run(identity) for identity, entry in known.items() if entry.held}
    for pattern in (".*", *(f"{name}/**/.*" for name in _WRITTEN), "searches/.*", "services/*.tmp", "runs/**/.*"):
        for path in sorted(workspace.folder.glob(pattern)):
            if _is_temporary(path) and not (busy and _fresh(path)) and held.isdisjoint(path.parents):
                yield path


def _is_temporary(path: Path) -> bool:
    return path.is_file() and (path.suffix == ".tmp" or _TEMPORARY.fullmatch(path.name) is not None)


def _fresh(path: Path) -> bool:
    return time.time() - path.lstat().st_mtime < FRESH_SECONDS


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def _open_again(ledger: Ledger, *, identity: str) -> None:
    folder = ledger.workspace.run(identity)
    if (why := DAMAGED if read_result(folder) is None else foreign(folder)) is not None:
        ledger.reopen(identity, reason=why)
        if found(folder) is not None:
            set_aside(folder, workspace=ledger.workspace, why=why)


def _enter(folder: Path, *, ledger: Ledger, result: Mapping[str, Any], meaning: dict[str, Any]) -> None:
    spec = read_spec(folder)
    per_token = count(spec.architecture).flops_per_token.training
    run = LedgerRun(
        identity=folder.name,
        meaning=meaning,
        state=result["outcome"],
        reason=result["reason"],
        attempts=0,
        step=result["step"],
        planned_steps=spec.num_steps,
        owner=None,
        seconds=result["seconds"],
        metrics=result["metrics"],
    )
    adopt(ledger, run=run, flops=float(spec.num_steps * spec.tokens_per_step * per_token))


def _unfinished(step: int) -> dict[str, Any]:
    """What stands for the result of a run that has none."""
    return {"outcome": "failed", "reason": FORGOTTEN, "step": step, "seconds": 0.0, "metrics": {}}


def _finding(kind: str, path: Path, workspace: Workspace, what: str, remedy: str, repair: Any) -> Finding:
    return Finding(kind, str(path.relative_to(workspace.folder)), what, remedy, repair)
