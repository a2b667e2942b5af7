"""The ledger: every run's state, who holds it, and which submissions asked for it.

The invariant: a run is claimed, renewed and finished by compare-and-set on (state, owner) inside one statement, so two
processes can never hold the same run, and a result from an owner that lost its lease is refused.

    planned -> leased -> running -> done | diverged | pruned | failed | cancelled | timed-out
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sql
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import DatabaseError, IntegrityError

from knockout.errors import InputError, WorkspaceError
from knockout.ledger.format import bring_up
from knockout.ledger.leases import HELD, LEASE, NOBODY, end_leases
from knockout.ledger.place import settle
from knockout.ledger.process import Owner
from knockout.ledger.tables import asks as _asks
from knockout.ledger.tables import open_engine
from knockout.ledger.tables import runs as _runs
from knockout.ledger.tables import submissions as _submissions
from knockout.ledger.workspace import Workspace

State = Literal["planned", "leased", "running", "done", "diverged", "pruned", "failed", "cancelled", "timed-out"]
FINISHED = ("done", "diverged")
"""A result: the run is never executed again."""
PRUNED = "pruned"
"""An end for the search that asked for the run; whoever else asks for it goes on with it."""
CLAIMABLE = ("planned", PRUNED, "failed", "cancelled", "timed-out")
LEASE_SECONDS = 60.0
"""A lease of another host is dead when its heartbeat is older than this."""

_HEADS = [column for column in _submissions.c if column.name not in ("plan", "facts")]


@dataclass(frozen=True)
class LedgerRun:
    """What the ledger says of one run."""

    identity: str
    meaning: dict[str, Any]
    state: str
    reason: str | None
    attempts: int
    step: int
    planned_steps: int
    owner: Owner | None
    seconds: float
    metrics: dict[str, float]

    @property
    def finished(self) -> bool:
        """Whether there is a result."""
        return self.state in FINISHED


@dataclass(frozen=True)
class Submission:
    """One execution of a study."""

    submission: str
    study: str
    state: str
    reason: str | None
    created: float
    finished: float | None
    owner: Owner | None


class Ledger:
    """Opens the database of a workspace, and makes it, once, under a lock."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.engine = open_engine(workspace)
        with self._telling("opened"), _making(workspace):
            bring_up(self.engine, workspace=workspace)
            with self.engine.begin() as connection:
                self.moved_from = settle(connection, workspace=workspace)
                """The folder that the workspace was copied or moved from since it was last opened, or None."""

    def close(self) -> None:
        """Give the connections back."""
        self.engine.dispose()

    def submit(
        self,
        submission: str,
        *,
        study: str,
        plan: str,
        owner: Owner,
        runs: Iterable[Mapping[str, Any]],
        arguments: str = "",
        mirrored: bool = False,
    ) -> None:
        """Record a submission and the runs that it asks for; a run that is known keeps its state.

        `arguments` is what the command line changed in the study, `mirrored` whether its runs are shown in MLflow.

        Each run gives identity, meaning, planned_steps, flops (of its whole training), variant, size, seed, role.
        """
        now = time.time()
        with self._write() as connection:
            connection.execute(
                _submissions.insert().values(
                    submission=submission,
                    study=study,
                    state="running",
                    plan=plan,
                    arguments=arguments,
                    mirrored=mirrored,
                    created=now,
                    **_owner_columns(owner),
                )
            )
            for run in runs:
                _ask(connection, run, submission=submission, now=now)

    def ask(self, submission: str, *, runs: Iterable[Mapping[str, Any]]) -> None:
        """Record more runs that a submission asks for; as `submit`."""
        now = time.time()
        with self._write() as connection:
            for run in runs:
                _ask(connection, run, submission=submission, now=now)

    def claim(self, identity: str, *, owner: Owner) -> bool:
        """Lease a run that nobody holds and that has no result. False when it is held or finished."""
        change = (
            _runs.update()
            .where(_runs.c.identity == identity, _runs.c.state.in_(CLAIMABLE))
            .values(
                state="leased", reason=None, attempts=_runs.c.attempts + 1, heartbeat=time.time(), **_owner_columns(owner)
            )
        )
        return self._changed(change)

    def start(self, identity: str, *, owner: Owner) -> bool:
        """From leased to running; False when the lease is lost."""
        change = _held(identity, owner=owner).values(state="running", heartbeat=time.time())
        return self._changed(change)

    def beat(self, identities: Iterable[str], *, owner: Owner) -> None:
        """Renew the leases of an owner."""
        names = list(identities)
        if names:
            change = _runs.update().where(_runs.c.identity.in_(names), _same_owner(owner)).values(heartbeat=time.time())
            self._changed(change)

    def finish(
        self,
        identity: str,
        *,
        owner: Owner,
        state: str,
        reason: str | None,
        step: int,
        seconds: float,
        metrics: Mapping[str, float],
    ) -> bool:
        """Record how a held run ended; refused (False) when the owner no longer holds the lease."""
        change = _held(identity, owner=owner).values(
            state=state,
            reason=reason,
            step=step,
            seconds=_runs.c.seconds + seconds,
            finished=time.time(),
            metrics=json.dumps(dict(metrics)),
            heartbeat=None,
            **NOBODY,
        )
        return self._changed(change)

    def reopen(self, identity: str, *, reason: str) -> None:
        """Take back a result whose files are gone, so that the run can be claimed again."""
        self._changed(
            _runs.update()
            .where(_runs.c.identity == identity, _runs.c.state.in_(FINISHED))
            .values(state="failed", reason=reason, metrics="{}")
        )

    def run(self, identity: str) -> LedgerRun | None:
        """One run, or None when it is unknown."""
        return next(iter(self.runs([identity])), None)

    def runs(self, identities: Iterable[str]) -> list[LedgerRun]:
        """Those of the runs that are known."""
        with self._read() as connection:
            rows = connection.execute(_runs.select().where(_runs.c.identity.in_(list(identities))))
            return [_run(row) for row in rows]

    def asked(self, submission: str, *, role: str | None = None) -> list[tuple[str, str, str, int]]:
        """(identity, variant, size, seed) of each run that a submission asked for, in one role (judged, trial) or all."""
        query = _asks.select().where(_asks.c.submission == submission)
        if role is not None:
            query = query.where(_asks.c.role == role)
        with self._read() as connection:
            rows = connection.execute(query)
            return [(row.identity, row.variant, row.size, row.seed) for row in rows]

    def submissions(self, study: str | None = None) -> list[Submission]:
        """Submissions, newest first, of one study or of all."""
        query = sql.select(*_HEADS).order_by(_submissions.c.created.desc())
        if study is not None:
            query = query.where(_submissions.c.study == study)
        with self._read() as connection:
            return [_submission(row) for row in connection.execute(query)]

    def conclude(self, submission: str, *, state: str, reason: str | None, facts: dict[str, Any] | None) -> None:
        """Record how a submission ended, with everything its report says."""
        values = {"state": state, "reason": reason, "finished": time.time(), **NOBODY}
        if facts is not None:
            values["facts"] = json.dumps(facts)
        with self._write() as connection:
            connection.execute(_submissions.update().where(_submissions.c.submission == submission).values(**values))

    def facts(self, study: str, *, arguments: str = "") -> dict[str, Any] | None:
        """What the newest report says of a study as it was changed by these arguments; None when there is none."""
        query = (
            sql.select(_submissions.c.facts)
            .where(_submissions.c.study == study, _submissions.c.arguments == arguments, _submissions.c.facts.is_not(None))
            .order_by(_submissions.c.created.desc())
            .limit(1)
        )
        with self._read() as connection:
            found = connection.execute(query).scalar_one_or_none()
        return json.loads(found) if found is not None else None

    def reported(self, study: str) -> list[str]:
        """The arguments under which a study has a report, newest first."""
        query = (
            sql.select(_submissions.c.arguments)
            .where(_submissions.c.study == study, _submissions.c.facts.is_not(None))
            .order_by(_submissions.c.created.desc())
        )
        with self._read() as connection:
            return list(dict.fromkeys(connection.execute(query).scalars()))

    def find(self, start: str) -> LedgerRun:
        """The run whose identity begins with `start`.

        Raises:
            InputError: there is none, or more than one.
        """
        query = _runs.select().where(_runs.c.identity.startswith(start, autoescape=True)).limit(2)
        with self._read() as connection:
            found = [_run(row) for row in connection.execute(query)]
        if len(found) != 1:
            raise InputError(f"{'no run' if not found else 'more than one run'} begins with '{start}'")
        return found[0]

    def nearest(self, meaning: dict[str, Any], *, identity: str) -> list[LedgerRun]:
        """The other runs of the same seed, from which a difference can be told."""
        with self._read() as connection:
            rows = [_run(row) for row in connection.execute(_runs.select().where(_runs.c.identity != identity))]
        return [run for run in rows if run.meaning.get("seed") == meaning.get("seed")]

    def reconcile(self) -> list[str]:
        """Set right what dead processes left: their runs become failed, their submissions too.

        Returns:
            Identities of the runs, and names of the submissions, whose owner is dead. The runs' checkpoints stay, so the
            next claim goes on from there.
        """
        with self._read() as connection:
            held = list(connection.execute(sql.select(*LEASE).where(_runs.c.state.in_(HELD))))
            open_ = list(connection.execute(_submissions.select().where(_submissions.c.state == "running")))
        dead = [row for row in held if _dead(row)]
        lost = [row for row in open_ if (owner := _owner(row)) is not None and owner.alive() is False]
        ended = {"finished": time.time(), **NOBODY}
        if dead:
            with self._write() as connection:
                end_leases(connection, of=dead)
        for row in lost:
            still = sql.and_(_submissions.c.submission == row.submission, _submissions.c.state == "running")
            reason = f"{_owner(row)} died"
            self._changed(_submissions.update().where(still).values(state="failed", reason=reason, **ended))
        return [*(row.identity for row in dead), *(row.submission for row in lost)]

    def _changed(self, change: sql.Update) -> bool:
        with self._write() as connection:
            return connection.execute(change).rowcount > 0

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        with self._telling("read"), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        with self._telling("written"), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def _telling(self, done: str) -> Iterator[None]:
        """What the disk does to the database is told as the workspace's error; what the program does is a fault."""
        try:
            yield
        except IntegrityError:
            raise
        except DatabaseError as error:
            raise WorkspaceError(f"the ledger {self.workspace.ledger} cannot be {done}: {error.orig}") from None
        except OSError as error:
            raise WorkspaceError(f"{self.workspace.folder} cannot be written: {error.strerror or error}") from None


@contextmanager
def _making(workspace: Workspace) -> Iterator[None]:
    with (workspace.folder / "ledger.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ask(connection: Connection, run: Mapping[str, Any], *, submission: str, now: float) -> None:
    """Insert what is not there, each in one statement: another process may insert the same run at the same moment."""
    known = {
        "identity": run["identity"],
        "meaning": json.dumps(run["meaning"], sort_keys=True),
        "state": "planned",
        "planned_steps": run["planned_steps"],
        "flops": run["flops"],
        "created": now,
    }
    ask = {key: run[key] for key in ("identity", "variant", "size", "seed", "role")}
    connection.execute(insert(_runs).values(**known).on_conflict_do_nothing())
    connection.execute(insert(_asks).values(submission=submission, **ask).on_conflict_do_nothing())


def _owner_columns(owner: Owner) -> dict[str, Any]:
    return {"host": owner.host, "pid": owner.pid, "process_started": owner.started}


def _same_owner(owner: Owner) -> sql.ColumnElement[bool]:
    return sql.and_(_runs.c.host == owner.host, _runs.c.pid == owner.pid, _runs.c.process_started == owner.started)


def _held(identity: str, *, owner: Owner) -> sql.Update:
    return _runs.update().where(_runs.c.identity == identity, _runs.c.state.in_(HELD), _same_owner(owner))


def _owner(row: Row[Any]) -> Owner | None:
    return Owner(row.host, row.pid, row.process_started) if row.host is not None else None


def _dead(row: Row[Any]) -> bool:
    owner = _owner(row)
    alive = owner.alive() if owner is not None else False
    return not alive if alive is not None else time.time() - (row.heartbeat or 0.0) > LEASE_SECONDS


def _run(row: Row[Any]) -> LedgerRun:
    return LedgerRun(
        row.identity,
        json.loads(row.meaning),
        row.state,
        row.reason,
        row.attempts,
        row.step,
        row.planned_steps,
        _owner(row),
        row.seconds,
        json.loads(row.metrics),
    )


def _submission(row: Row[Any]) -> Submission:
    return Submission(row.submission, row.study, row.state, row.reason, row.created, row.finished, _owner(row))
