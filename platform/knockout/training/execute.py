"""One run, as its owner sees it: claim it, have it trained, watch it, and record how it ended.

The invariant: a run is `done` only when its sealed result says so and has the planned step count, whatever the exit code;
every other ending has its own state and reason.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from knockout.errors import RunError
from knockout.ledger.process import Owner
from knockout.ledger.speeds import Speed, remember, shape
from knockout.ledger.store import Ledger, LedgerRun
from knockout.training.launcher import Child, Nursery
from knockout.training.progress import read_progress
from knockout.training.result import discard, read_result
from knockout.training.spec import EXIT_UNWRITABLE, LOG, RESULT, Runtime
from knockout.training.stop import Stop

HEARTBEAT_SECONDS = 5.0
POLL_SECONDS = 0.1
WAIT_SECONDS = 1.0
STOP_GRACE_SECONDS = 20.0
DAMAGED = "its files are gone or damaged"

Early = Callable[[], str | None]
"""Asked again and again while a run trains: why it is to be pruned, or None."""


def never() -> None:
    """A run that is not pruned."""


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
) -> Execution:
    """Bring a run to an end: reuse its result, train it, or wait for whoever is training it.

    A run that was pruned stays so while `early` finds a reason in what it left; else it goes on where it was.

    Raises:
        RunError: the run vanished from the ledger, or its lease was lost to somebody else.
    """
    folder = ledger.workspace.run(identity)
    if (run := _known(ledger, identity)).state == "pruned" and early() is not None:
        return Execution(run, reused=True)
    while limits.stop.is_set() or not ledger.claim(identity, owner=owner):
        run = _known(ledger, identity)
        if run.finished and read_result(folder) is not None:
            return Execution(run, reused=True)
        if limits.stop.is_set():
            return Execution(run, reused=False)
        if run.finished:
            ledger.reopen(identity, reason=DAMAGED)
        elif not limits.stop.wait(WAIT_SECONDS):
            ledger.reconcile()
    started = time.monotonic()
    state, reason, result = _train(
        identity,
        folder=folder,
        ledger=ledger,
        owner=owner,
        nursery=nursery,
        runtime=runtime,
        environment=environment,
        limits=limits,
        early=early,
    )
    progress = read_progress(folder)
    kept = ledger.finish(
        identity,
        owner=owner,
        state=state,
        reason=reason,
        seconds=time.monotonic() - started,
        step=result["step"] if result else progress[0] if progress else 0,
        metrics=result["metrics"] if result else {},
    )
    if not kept:
        raise RunError(f"run {identity}: {owner} lost its lease; its result was refused")
    if result is not None:
        _remember_speed(identity, result=result, ledger=ledger)
    return Execution(_known(ledger, identity), reused=False)


def _train(
    identity: str,
    *,
    folder: Path,
    ledger: Ledger,
    owner: Owner,
    nursery: Nursery,
    runtime: Runtime,
    environment: Mapping[str, str],
    limits: Limits,
    early: Early,
) -> tuple[str, str | None, dict[str, Any] | None]:
    """The state, the reason and the sealed result that a claimed run comes to."""
    if (result := read_result(folder)) is not None:
        return result["outcome"], result["reason"], result
    if (folder / RESULT).exists():
        discard(folder)
    ledger.start(identity, owner=owner)
    if (pruned := early()) is not None:
        return "pruned", pruned, None
    try:
        child = nursery.launch(folder, runtime=runtime, environment=environment)
    except RunError as error:
        return "failed", str(error), None
    ended_by = _watch(child, identity=identity, ledger=ledger, owner=owner, nursery=nursery, limits=limits, early=early)
    result = read_result(folder)
    if result is not None:
        return result["outcome"], result["reason"], result
    if ended_by is not None:
        return ended_by[0], ended_by[1], None
    return "failed", _reason(child, folder=folder), None


def _watch(
    child: Child, *, identity: str, ledger: Ledger, owner: Owner, nursery: Nursery, limits: Limits, early: Early
) -> tuple[str, str] | None:
    """Wait for the process to end; the state and reason when it was made to end, or None when it ended by itself."""
    started = beaten = time.monotonic()
    while not child.ended.wait(POLL_SECONDS):
        now = time.monotonic()
        if now - beaten > HEARTBEAT_SECONDS:
            beaten = now
            ledger.beat([identity], owner=owner)
        if limits.stop.is_set():
            _end(child, nursery=nursery)
            return limits.stop.ending.state, limits.stop.ending.reason
        if limits.run_seconds is not None and now - started > limits.run_seconds:
            _end(child, nursery=nursery)
            return "timed-out", f"longer than {limits.run_seconds:g} seconds"
        if (pruned := early()) is not None:
            _end(child, nursery=nursery)
            return "pruned", pruned
    return None


def _end(child: Child, *, nursery: Nursery) -> None:
    """Ask the process to stop after its step; kill its group when it does not."""
    nursery.signal(child, signal.SIGTERM)
    if not child.ended.wait(STOP_GRACE_SECONDS):
        nursery.signal(child, signal.SIGKILL)
        child.ended.wait(STOP_GRACE_SECONDS)


def _reason(child: Child, *, folder: Path) -> str:
    """Why a process ended without a result, in one line."""
    log = folder / LOG
    if child.code is None:
        return "the parent of the training processes died"
    if child.code < 0:
        name = signal.Signals(-child.code).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}; see {log}"
    if child.code == EXIT_UNWRITABLE:
        return f"{folder} cannot be written: the disk is full, or may not be written to"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    said = lines[-1] if lines else "no message"
    return f"its process ended with exit code {child.code}: {said}; see {log}"


def _remember_speed(identity: str, *, result: Mapping[str, Any], ledger: Ledger) -> None:
    """What a run's parts took, for the plans of others like it."""
    if result.get("timing") is not None:
        name = shape(_known(ledger, identity).meaning)
        remember(ledger, shape=name, origin=identity, speed=Speed(**result["timing"]))


def _known(ledger: Ledger, identity: str) -> LedgerRun:
    run = ledger.run(identity)
    if run is None:
        raise RunError(f"run {identity} is not in the ledger")
    return run
