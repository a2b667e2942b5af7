"""One run, as its owner sees it: claim it, have it trained, watch it, and record how it ended.

The invariant: a run is `done` only when its sealed result says so and has the planned step count, whatever the exit code;
every other ending has its own state and reason. Who loses the lease of a run has no say in how it ended.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from knockout.errors import RunError, WorkspaceError
from knockout.ledger.lease import Lease
from knockout.ledger.process import Owner
from knockout.ledger.speeds import Speed, remember, shape
from knockout.ledger.store import Ledger, LedgerRun
from knockout.services.processes import signal_in_words
from knockout.services.waiting import Say
from knockout.training.folder import make_ready
from knockout.training.launcher import Child, Nursery
from knockout.training.processes import is_full
from knockout.training.progress import PROGRESS, read_progress
from knockout.training.result import checkpoint_files, read_result, remove_checkpoints
from knockout.training.sharing import SharedCheckpoints, fetch_checkpoint, fetch_result, share_result
from knockout.training.spec import EXIT_NO_MEMORY, EXIT_UNWRITABLE, LOG, PASSED_OVER, Runtime
from knockout.training.stop import Stop

POLL_SECONDS = 0.1
WAIT_SECONDS = 1.0
STOP_GRACE_SECONDS = 5.0
"""So long a process has for its step before its group is killed."""
NURSERIES = 4
"""So many parents of training processes may die under a run before it has failed."""
DAMAGED = "its files are gone or damaged"

Early = Callable[[], str | None]
"""Asked again and again while a run trains: why it is to be pruned, or None."""


def never() -> None:
    """A run that is not pruned."""


def unheard(*_: str) -> None:
    """Nobody is told that a run has begun, or of what it begins."""


@dataclass(frozen=True)
class Limits:
    """What ends a run early."""

    run_seconds: float | None = None
    """Longest time that a run may take."""
    stop: Stop = field(default_factory=Stop)
    """Ends every run that is in work."""


@dataclass(frozen=True)
class Execution:
    """How a run came to its present state."""

    run: LedgerRun
    reused: bool
    disk_full: bool = False
    """Whether it failed for want of room on the disk: other runs there will as well."""


@dataclass(frozen=True)
class _Work:
    """A run that is to be brought to an end, and with what."""

    identity: str
    ledger: Ledger
    owner: Owner
    nursery: Nursery
    runtime: Runtime
    environment: Mapping[str, str]
    limits: Limits
    early: Early
    say: Say

    @property
    def folder(self) -> Path:
        return self.ledger.workspace.run(self.identity)

    @property
    def known(self) -> LedgerRun:
        return _known(self.identity, ledger=self.ledger)


@dataclass(frozen=True)
class _End:
    """The state, the reason and the sealed result that a claimed run comes to."""

    state: str
    reason: str | None
    result: dict[str, Any] | None = None
    found: bool = False
    """Whether the result was there already."""
    disk_full: bool = False
    """See Execution."""


def _known(identity: str, *, ledger: Ledger) -> LedgerRun:
    run = ledger.run(identity)
    if run is None:
        raise RunError(f"run {identity} is not in the ledger")
    return run


def execute(
    identity: str,
    *,
    ledger: Ledger,
    owner: Owner,
    nursery: Nursery,
    runtime: Runtime,
    environment: Mapping[str, str],
    limits: Limits,
    early: Early = never,
    began: Callable[[], None] = unheard,
    say: Say = unheard,
) -> Execution:
    """Bring a run to an end: reuse its result, train it, or wait for whoever is training it.

    A run that was pruned stays so while `early` finds a reason in what it left; else it goes on where it was. `began` is
    called when the run is claimed, or was found to have an end already; `say` as soon as there is something that people
    should know of the files that it had left. An owner that loses the lease meanwhile, because it was taken for dead, ends
    its own process of the run, and waits for whoever has it now.

    Raises:
        RunError: the run vanished from the ledger.
    """
    work = _Work(identity, ledger, owner, nursery, runtime, environment, limits, early, say)
    while True:
        if (found := _claim(work)) is not None:
            if found.reused:
                began()
            return found
        began()
        if (end := _bring(work)) is not None:
            return Execution(work.known, reused=end.found, disk_full=end.disk_full)


def reuse(identity: str, *, ledger: Ledger, early: Early = never) -> Execution | None:
    """The end that a run has come to, its result being here by now; None where there is something to do for it.

    Raises:
        RunError: the ledger does not know the run.
    """
    run = _known(identity, ledger=ledger)
    if run.state == "pruned" and early() is not None:
        return Execution(run, reused=True)
    if not run.finished:
        return None
    fetch_result(ledger.workspace, identity)
    return Execution(run, reused=True) if read_result(ledger.workspace.run(identity)) is not None else None


def _claim(work: _Work) -> Execution | None:
    """Wait until the run is held by this owner: then None. Else where it stands, when there is nothing to do for it."""
    stop, ledger = work.limits.stop, work.ledger
    if work.known.state == "pruned" and (pruned := reuse(work.identity, ledger=ledger, early=work.early)) is not None:
        return pruned
    while stop.is_set() or not ledger.claim(work.identity, owner=work.owner):
        if (ended := reuse(work.identity, ledger=ledger)) is not None:
            return ended
        run = work.known
        if stop.is_set():
            return Execution(run, reused=False)
        if run.finished:
            ledger.reopen(work.identity, reason=DAMAGED)
        elif not stop.wait(WAIT_SECONDS):
            ledger.reconcile()
    return None


def _bring(work: _Work) -> _End | None:
    """Train a claimed run and record how it ended; None when the lease was lost, and so the result refused."""
    started = time.monotonic()
    with Lease(work.ledger, work.identity, owner=work.owner, step=partial(_step, work.folder)) as lease:
        end = _shared(work, end=_ended(work, lease=lease))
        result = end.result
        kept = work.ledger.finish(
            work.identity,
            owner=work.owner,
            state=end.state,
            reason=end.reason,
            seconds=time.monotonic() - started,
            step=result["step"] if result else _step(work.folder) or _newest_checkpoint(work.folder),
            metrics=result["metrics"] if result else {},
        )
    if kept and result is not None:
        _remember_speed(work, result=result)
    return end if kept else None


def _step(folder: Path) -> int | None:
    """The step of the run that trains in a folder; None before its first."""
    progress = read_progress(folder)
    return progress[0] if progress is not None else None


def _newest_checkpoint(folder: Path) -> int:
    """The step of the newest checkpoint; 0 where there is none."""
    return max((int(path.stem) for path in checkpoint_files(folder)), default=0)


def _shared(work: _Work, *, end: _End) -> _End:
    """The end, once other machines can have its result; a failure where the store does not take it.

    Who has lost the lease shares nothing: the result is another's by now.
    """
    if end.result is None or not work.ledger.beat(work.identity, owner=work.owner):
        return end
    try:
        share_result(work.ledger.workspace, work.identity)
    except (OSError, WorkspaceError) as error:
        return _End("failed", f"its result lies here and is not shared: {error}")
    return end


def _ended(work: _Work, *, lease: Lease) -> _End:
    """How a claimed run ends; what the system refuses to do for it is its failure, so that the lease is given back."""
    try:
        ready = make_ready(work.ledger.workspace, work.identity, meaning=work.known.meaning)
        for note in ready.notes:
            work.say(note)
        if ready.result is not None:
            return replace(_end_of(ready.result, folder=work.folder), found=True)
        return _train(work, lease=lease)
    except WorkspaceError as error:
        return _End("failed", str(error), disk_full=is_full(error))
    except OSError as error:
        said = f"{error.filename or work.folder}: {error.strerror or error}"
        return _End("failed", said, disk_full=is_full(error))


def _train(work: _Work, *, lease: Lease) -> _End:
    work.ledger.start(work.identity, owner=work.owner)
    fetch_checkpoint(work.ledger.workspace, work.identity)
    if (pruned := work.early()) is not None:
        return _End("pruned", pruned)
    for name in (PROGRESS, PASSED_OVER):  # an earlier attempt's
        (work.folder / name).unlink(missing_ok=True)
    for _ in range(NURSERIES):
        try:
            child = work.nursery.launch(work.folder, runtime=work.runtime, environment=work.environment)
        except RunError as error:
            return _End("failed", str(error))
        try:
            with SharedCheckpoints(work.ledger.workspace, work.identity):
                ended_by = _watch(child, work=work, lease=lease)
        except (OSError, WorkspaceError):
            _end(child, nursery=work.nursery)
            raise
        if (sealed := _sealed(work.folder)) is not None:
            return sealed
        if ended_by is not None:
            return ended_by
        if child.code is not None:
            return _End("failed", _reason(child, folder=work.folder), disk_full=_found_no_room(child, folder=work.folder))
    return _End("failed", f"the parent of the training processes died {NURSERIES} times while it trained")


def _sealed(folder: Path) -> _End | None:
    """What a run has come to where its result is sealed; its process may have died before it had tidied up."""
    result = read_result(folder)
    return _end_of(result, folder=folder) if result is not None else None


def _end_of(result: dict[str, Any], *, folder: Path) -> _End:
    if result["outcome"] == "done":
        remove_checkpoints(folder)
    return _End(result["outcome"], result["reason"], result)


def _told_start(work: _Work) -> bool:
    """Whether the run's process did not go on from its newest checkpoint; then why is told."""
    try:
        work.say((work.folder / PASSED_OVER).read_text().strip())
    except OSError:
        return False
    return True


def _watch(child: Child, *, work: _Work, lease: Lease) -> _End | None:
    """Wait for the process to end; how the run ends when it was made to end, or None when it ended by itself."""
    started, limits, told = time.monotonic(), work.limits, False
    while not child.ended.wait(POLL_SECONDS):
        told = told or _told_start(work)
        if lease.lost.is_set():
            work.nursery.signal(child, signal.SIGKILL)  # whoever has the run now needs its folder
            child.ended.wait(STOP_GRACE_SECONDS)
            return _End("failed", f"{work.owner} lost its lease")
        if limits.stop.is_set():
            _end(child, nursery=work.nursery)
            return _End(limits.stop.ending.state, limits.stop.ending.reason)
        if limits.run_seconds is not None and time.monotonic() - started > limits.run_seconds:
            _end(child, nursery=work.nursery)
            return _End("timed-out", f"longer than {limits.run_seconds:g} seconds")
        if (pruned := work.early()) is not None:
            _end(child, nursery=work.nursery)
            return _End("pruned", pruned)
    if not told:
        _told_start(work)
    return None


def _end(child: Child, *, nursery: Nursery) -> None:
    """Ask the process to stop after its step; kill its group when it does not."""
    nursery.signal(child, signal.SIGTERM)
    if not child.ended.wait(STOP_GRACE_SECONDS):
        nursery.signal(child, signal.SIGKILL)
        child.ended.wait(STOP_GRACE_SECONDS)


def _found_no_room(child: Child, *, folder: Path) -> bool:
    """Whether a process could not write though it was allowed to."""
    return child.code == EXIT_UNWRITABLE and os.access(folder, os.W_OK)


def _reason(child: Child, *, folder: Path) -> str:
    """Why a process ended without a result, in one line."""
    log = folder / LOG
    assert child.code is not None
    if child.code < 0:
        return f"its process was ended by {signal_in_words(child.code)}; see {_shown(log)}"
    if child.code == EXIT_UNWRITABLE:
        return f"{folder} cannot be written: the disk is full, or may not be written to"
    if not log.exists():
        return f"its process ended with exit code {child.code}, and {log} was taken away while it worked"
    lines = log.read_text(errors="replace").strip().splitlines()
    said = lines[-1] if lines else "no message"
    if child.code == EXIT_NO_MEMORY:
        return f"{said}; see {_shown(log)}"
    return f"its process ended with exit code {child.code}: {said}; see {_shown(log)}"


def _shown(log: Path) -> str:
    """Where a log is, as seen from the workspace: a copy of the workspace has its own."""
    return f"{Path(*log.parts[-3:])} in the workspace"


def _remember_speed(work: _Work, *, result: Mapping[str, Any]) -> None:
    """What a run's parts took, for the plans of others like it."""
    if result.get("timing") is not None:
        name = shape(work.known.meaning)
        remember(work.ledger, shape=name, origin=work.identity, speed=Speed(**result["timing"]))
