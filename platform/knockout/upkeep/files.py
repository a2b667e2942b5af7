"""Run folders and files that are not what the ledger says, or were never finished.

The invariant: what a living process may be writing is left alone.
"""

from __future__ import annotations

import json
import re
import time
import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from knockout.account import count
from knockout.ledger.identity import identity
from knockout.ledger.inventory import Entry, adopt
from knockout.ledger.store import FINISHED, Ledger, LedgerRun
from knockout.ledger.workspace import Workspace
from knockout.training.execute import DAMAGED
from knockout.training.metrics import segments
from knockout.training.result import read_result
from knockout.training.sharing import is_shared
from knockout.training.spec import CHECKPOINTS, MEANING, read_spec
from knockout.upkeep.altered import altered
from knockout.upkeep.finding import Finding
from knockout.upkeep.lost import set_aside

FRESH_SECONDS = 60.0
"""A younger temporary file may be one that is being written, a younger folder one of a submission that just begins."""
_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}|\.report-[a-z0-9_]{8}\.html")
_WRITTEN = ("reports", "submissions", "history", "sweeps")
_TO_LOST = "moves it to lost+found/"


def orphans(ledger: Ledger, *, known: Mapping[str, Entry], busy: bool) -> Iterator[Finding]:
    """Run folders that the ledger does not know; one with a whole result of the run that it is named after is entered.

    While the workspace is `busy`, a young folder may be one that the ledger is about to be told of.
    """
    runs = ledger.workspace.folder / "runs"
    for path in sorted(runs.iterdir()):
        if path.name in known or _is_temporary(path) or (busy and _fresh(path)):
            continue
        result, meaning = read_result(path), _read(path / MEANING)
        if result is not None and meaning is not None and identity(meaning) == path.name:
            enter = partial(_enter, path, ledger=ledger, result=result, meaning=meaning)
            yield _finding("orphan", path, ledger.workspace, "a result that the ledger does not know", "enters it", enter)
        else:
            why = "the ledger knows no such run"
            move = partial(set_aside, path, workspace=ledger.workspace, why=why)
            yield _finding("orphan", path, ledger.workspace, why, _TO_LOST, move)


def damaged_runs(ledger: Ledger, *, known: Mapping[str, Entry]) -> Iterator[Finding]:
    """Results whose files are gone or changed, and unfinished runs that could not go on from what they left."""
    recorded = {run.identity: run for run in ledger.runs(name for name, entry in known.items() if entry.finished)}
    for entry in known.values():
        folder = ledger.workspace.run(entry.identity)
        result = read_result(folder) if entry.finished else None
        if result is not None and entry.identity in recorded:
            yield from altered(result, run=recorded[entry.identity], workspace=ledger.workspace)
        elif entry.finished and not is_shared(ledger.workspace, entry.identity):
            remedy = "opens the run again, and moves what is left of it to lost+found/"
            repair = partial(_open_again, ledger, identity=entry.identity)
            yield _finding("damaged run", folder, ledger.workspace, f"{entry.state}, but {DAMAGED}", remedy, repair)
        elif not entry.finished and not entry.held:
            yield from _unreadable(folder, workspace=ledger.workspace)


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
    return time.time() - path.stat().st_mtime < FRESH_SECONDS


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def _unreadable(folder: Path, *, workspace: Workspace) -> Iterator[Finding]:
    """What an unfinished run could not go on from. Each file was whole when it was renamed, so the disk did it."""
    bad = [path for path in segments(folder) if not _is_table(path)]
    if bad:
        why = f"{bad[0].relative_to(folder)} cannot be read, so the run cannot go on"
        remedy = f"{_TO_LOST}; the run is trained from its start"
        yield _finding(
            "damaged run", folder, workspace, why, remedy, partial(set_aside, folder, workspace=workspace, why=why)
        )
        return
    for path in sorted((folder / CHECKPOINTS).glob("[0-9]*.pt")):
        if not _is_checkpoint(path):
            why = "this checkpoint cannot be read"
            move = partial(set_aside, path, workspace=workspace, why=why)
            yield _finding("damaged run", path, workspace, why, f"{_TO_LOST}; the one before it counts", move)


def _is_table(path: Path) -> bool:
    try:
        pq.read_table(path)
    except (OSError, pa.ArrowInvalid):
        return False
    return True


def _is_checkpoint(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as records:
            return records.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


def _open_again(ledger: Ledger, *, identity: str) -> None:
    folder = ledger.workspace.run(identity)
    if read_result(folder) is None:
        ledger.reopen(identity, reason=DAMAGED)
        if folder.exists():
            set_aside(folder, workspace=ledger.workspace, why=DAMAGED)


def _enter(folder: Path, *, ledger: Ledger, result: Mapping[str, Any], meaning: dict[str, Any]) -> None:
    spec = read_spec(folder)
    per_token = count(spec.architecture).flops_per_token.training
    assert result["outcome"] in FINISHED
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


def _finding(kind: str, path: Path, workspace: Workspace, what: str, remedy: str, repair: Any) -> Finding:
    return Finding(kind, str(path.relative_to(workspace.folder)), what, remedy, repair)
