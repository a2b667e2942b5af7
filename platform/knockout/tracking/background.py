"""The mirror behind a queue: training says what happened and goes on, one thread writes it down.

The invariant: no call raises an error of MLflow's, and none waits for it. What could not be written is told
once, at `close`. The run folders keep everything, so nothing is lost with it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from knockout.errors import InputError, KnockoutError
from knockout.services.waiting import Say
from knockout.tracking.inspection import is_waited_for, store_file
from knockout.tracking.mirror import Mirror
from knockout.tracking.naming import State

Handle = Future[str]
"""A run that may not exist yet; later calls take it in the place of the run's id."""

ATTEMPTS = 5
FIRST_WAIT_SECONDS = 0.2
MAX_QUEUED = 10_000
LOOK_SECONDS = 2.0
WAITING = "waiting for MLflow's database, which another process holds …"
GONE = "its database was removed or replaced meanwhile; `knockout doctor` tells what is missing"
NAMED = 3
"""So many of what failed for one reason are named; what is beyond is counted."""
PERMANENT = (ValueError, TypeError, KeyError, FileNotFoundError, InputError)
T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """One call of the mirror, to be made later."""

    label: str
    """What it writes, for the warning."""
    run: Handle | str | None
    """The run that it belongs to."""
    call: Callable[[Mirror, str], object]
    """Takes the mirror and the run's id."""
    opens: Handle | None = None
    """Resolved with the id that the call returns."""


class BackgroundMirror:
    """The verbs of `Mirror`, none of which blocks or raises. `open_…` return handles that later calls take.

    MLflow is imported in the thread. For any number of calling threads.
    """

    def __init__(self, workspace: Path, *, connect: Callable[[Path], Mirror] = Mirror) -> None:
        self._workspace = workspace
        self._connect = connect
        self._jobs: queue.Queue[Job | None] = queue.Queue(MAX_QUEUED)
        self._failed: Counter[tuple[str, str]] = Counter()
        self._abandoned = threading.Event()
        self._current: Job | None = None
        self._unusable = ""
        self._file: tuple[int, int] | None = None
        """Which file the store was when it was opened."""
        self._thread = threading.Thread(target=self._work, name="mlflow-mirror", daemon=True)
        self._thread.start()

    def open_submission(
        self,
        study: str,
        *,
        submission: str,
        tags: Mapping[str, object],
        params: Mapping[str, object],
        artifacts: Mapping[str, str],
    ) -> Handle:
        """See `Mirror.open_submission`."""
        return self._open(
            f"submission {submission}",
            run=None,
            call=lambda mirror, _: mirror.open_submission(
                study, submission=submission, tags=tags, params=params, artifacts=artifacts
            ),
        )

    def open_run(
        self,
        parent: Handle | str,
        *,
        name: str,
        identity: str,
        tags: Mapping[str, object],
        params: Mapping[str, object],
        split: Mapping[str, int],
        corpus: Mapping[str, object],
        artifacts: Mapping[str, str] | None = None,
    ) -> Handle:
        """See `Mirror.open_run`."""
        return self._open(
            f"run {name}",
            run=parent,
            call=lambda mirror, parent_id: mirror.open_run(
                parent_id,
                name=name,
                identity=identity,
                tags=tags,
                params=params,
                split=split,
                corpus=corpus,
                artifacts=artifacts,
            ),
        )

    def metrics(
        self,
        run: Handle | str,
        rows: Iterable[tuple[str, int, float, float]],
        *,
        planned_steps: int | None = None,
    ) -> None:
        """See `Mirror.metrics`."""
        kept = tuple(rows)
        self._put(
            Job(
                "metrics",
                run,
                lambda mirror, run_id: mirror.metrics(run_id, kept, planned_steps=planned_steps),
            )
        )

    def close_run(
        self,
        run: Handle | str,
        *,
        state: State,
        reason: str,
        final: Mapping[str, float],
        artifacts: Mapping[str, Path],
        series: Iterable[tuple[str, int, float, float]] = (),
        planned_steps: int | None = None,
    ) -> None:
        """See `Mirror.close_run`."""
        kept = tuple(series)
        self._put(
            Job(
                "end of a run",
                run,
                lambda mirror, run_id: mirror.close_run(
                    run_id,
                    state=state,
                    reason=reason,
                    final=final,
                    artifacts=artifacts,
                    series=kept,
                    planned_steps=planned_steps,
                ),
            )
        )

    def close_submission(
        self,
        parent: Handle | str,
        *,
        state: State,
        verdicts: Sequence[Mapping[str, object]],
        report: Path | None,
        tags: Mapping[str, object] | None = None,
    ) -> None:
        """See `Mirror.close_submission`."""
        self._put(
            Job(
                "end of the submission",
                parent,
                lambda mirror, run_id: mirror.close_submission(
                    run_id, state=state, verdicts=verdicts, report=report, tags=tags
                ),
            )
        )

    def perform(self, label: str, call: Callable[[Mirror], object]) -> None:
        """Do something else with the mirror; `label` says what, for the warning."""
        self._put(Job(label, None, lambda mirror, _: call(mirror)))

    def close(self, *, timeout_seconds: float = 30.0, say: Say = lambda _: None) -> str | None:
        """Wait for what is queued, and end. Returns a warning that names what was not mirrored, or None.

        `say` is told, once, where another process has MLflow's database and is waited for.
        """
        self._put(None)
        self._wait(timeout_seconds, say=say)
        self._abandoned.set()
        self._note_unfinished(f"MLflow's store did not take it within {timeout_seconds:.0f} s")
        if self._file is not None and store_file(self._workspace) != self._file:
            self._failed["all of it", GONE] += 1
        return self._warning()

    def _wait(self, seconds: float, *, say: Say) -> None:
        """Wait until the thread has ended, for so long at most."""
        until = time.monotonic() + seconds
        while self._thread.is_alive() and time.monotonic() < until:
            self._thread.join(min(LOOK_SECONDS, until - time.monotonic()))
            if self._thread.is_alive() and is_waited_for(self._workspace):
                say(WAITING)
                self._thread.join(max(0.0, until - time.monotonic()))

    def _open(self, label: str, *, run: Handle | str | None, call: Callable[[Mirror, str], str]) -> Handle:
        handle: Handle = Future()
        self._put(Job(label, run, call, opens=handle))
        return handle

    def _put(self, job: Job | None) -> None:
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            if job is None:
                self._abandoned.set()
            else:
                self._fail(job, f"more than {MAX_QUEUED} calls were waiting")

    def _work(self) -> None:
        mirror: Mirror | None = None
        while not self._abandoned.is_set() and (job := self._jobs.get()) is not None:
            self._current = job
            if mirror is None and not self._unusable:
                mirror = self._connected()
            if mirror is None:
                self._fail(job, self._unusable)
            else:
                self._perform(job, mirror=mirror)
            self._current = None

    def _connected(self) -> Mirror | None:
        """The mirror; None, once and for all, if the store cannot be opened."""
        try:
            mirror = self._attempt(lambda: self._connect(self._workspace))
            self._file = store_file(self._workspace)
            return mirror
        except Exception as error:  # told at `close`
            self._unusable = one_line(error)
            return None

    def _perform(self, job: Job, *, mirror: Mirror) -> None:
        """Make one call, again if it fails."""
        run_id = run_id_of(job.run)
        if run_id is None:
            self._fail(job, "its run could not be opened")
            return
        try:
            result = self._attempt(lambda: job.call(mirror, run_id))
        except Exception as error:  # whatever MLflow raises is told at `close`, and training goes on
            self._fail(job, one_line(error))
            return
        if job.opens is not None and job.opens.set_running_or_notify_cancel():  # else `close` has given up on it
            job.opens.set_result(str(result))

    def _attempt(self, call: Callable[[], T]) -> T:
        """Call, and again after 0.2, 0.4, 0.8, 1.6 s while it fails for a reason that may pass."""
        for attempt in range(ATTEMPTS - 1):
            try:
                return call()
            except PERMANENT:
                raise
            except Exception:
                if self._abandoned.wait(FIRST_WAIT_SECONDS * 2**attempt):
                    raise
        return call()

    def _fail(self, job: Job, reason: str) -> None:
        self._failed[job.label, reason] += 1
        if job.opens is not None:
            job.opens.cancel()

    def _note_unfinished(self, reason: str) -> None:
        if (current := self._current) is not None:
            self._fail(current, reason)
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            if job is not None:
                self._fail(job, reason)

    def _warning(self) -> str | None:
        if not self._failed:
            return None
        return f"not mirrored to MLflow (the run folders hold it all): {told_once(self._failed)}"


def told_once(failed: Mapping[tuple[str, str], int]) -> str:
    """What failed and why, from the numbers of failures by (label, reason): each reason once, with the first it befell."""
    labels: dict[str, list[str]] = {}
    for (label, reason), n in failed.items():
        labels.setdefault(reason, []).append(f"{label} ({n} times)" if n > 1 else label)
    return "; ".join(f"{_listed(names)}: {reason}" for reason, names in labels.items())


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def run_id_of(run: Handle | str | None) -> str | None:
    """The id of a run; an empty string where no run is needed, None if it was never opened.

    Calls are made in order, so the call that opens a run has been made before.
    """
    if run is None or isinstance(run, str):
        return run or ""
    return run.result() if run.done() and not run.cancelled() else None


def one_line(error: Exception) -> str:
    """An error for the warning; what knockout itself raises is a sentence already."""
    first, _, _ = str(error).partition("\n")
    if isinstance(error, KnockoutError) and first:
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
