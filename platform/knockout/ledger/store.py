"""The ledger: every run's state, who holds it, and which submissions asked for it.

The invariant: a run is claimed, renewed and finished by compare-and-set on (state, owner) inside one statement, so two
processes can never hold the same run, and a result from an owner that lost its lease is refused.

    planned -> leased -> running -> done | diverged | pruned | failed | cancelled | timed-out
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import sqlalchemy as sql
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import DBAPIError, IntegrityError

from knockout.errors import InputError, WorkspaceError, quoted
from knockout.ledger.dialects import DatabaseTime, insert, one_at_a_time
from knockout.ledger.format import bring_up
from knockout.ledger.leases import (
    EXECUTION,
    HELD,
    LEASE,
    NOBODY,
    asked_to_stop,
    death_of_executor,
    death_of_holder,
    end_executions,
    end_leases,
)
from knockout.ledger.place import settle
from knockout.ledger.postgres import reconnecting
from knockout.ledger.process import SILENT, Owner
from knockout.ledger.reserve import give_up, keep
from knockout.ledger.rows import FINISHED, LedgerRun, Submission, run_of, submission_of
from knockout.ledger.tables import NoRoom, kind_of, open_engine, refused
from knockout.ledger.tables import asks as _asks
from knockout.ledger.tables import flow_runs as _flow_runs
from knockout.ledger.tables import runs as _runs
from knockout.ledger.tables import submissions as _submissions
from knockout.ledger.workspace import Workspace

T = TypeVar("T")
State = Literal["planned", "leased", "running", "done", "diverged", "pruned", "failed", "cancelled", "timed-out"]
PRUNED = "pruned"
"""An end for the search that asked for the run; whoever else asks for it goes on with it."""
CLAIMABLE = ("planned", PRUNED, "failed", "cancelled", "timed-out")

ASKING = "asking for runs"
"""What a submission does while none of the runs may be removed that it is about to ask for."""
_HEADS = [column for column in _submissions.c if column.name not in ("plan", "facts")]


class Ledger:
    """Opens the database of a workspace, and makes it, once, under a lock."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.engine = open_engine(workspace)
        self.moved_from: str | None = None
        """The folder that the workspace was copied or moved from since it was last opened, or None."""
        try:
            self.spending(self._open)
        except BaseException:
            self.engine.dispose()
            raise

    def close(self) -> None:
        """Give the connections back."""
        self.engine.dispose()

    @reconnecting
    def submit(
        self,
        submission: str,
        *,
        study: str,
        plan: str,
        owner: Owner,
        runs: Collection[Mapping[str, Any]],
        arguments: str = "",
        mirrored: bool = False,
        prefect: bool = False,
    ) -> None:
        """Record a submission and the runs that it asks for; a run that is known keeps its state.

        `arguments` is what the command line changed in the study, `mirrored` whether its runs are shown in MLflow,
        `prefect` whether Prefect is to have a flow run of it.

        Each run gives identity, meaning, planned_steps, flops (of its whole training), variant, size, seed, role.
        """
        now = time.time()
        with self._write() as connection:
            connection.execute(
                insert(_submissions, bind=connection)
                .values(
                    submission=submission,
                    study=study,
                    state="running",
                    plan=plan,
                    arguments=arguments,
                    mirrored=mirrored,
                    created=now,
                    heartbeat=DatabaseTime(),
                    **_owner_columns(owner),
                )
                .on_conflict_do_nothing()
            )
            if prefect:
                owed = insert(_flow_runs, bind=connection).values(submission=submission)
                connection.execute(owed.on_conflict_do_nothing())
            _ask(connection, list(runs), submission=submission, now=now)

    @reconnecting
    def ask(self, submission: str, *, runs: Collection[Mapping[str, Any]]) -> None:
        """Record more runs that a submission asks for; as `submit`."""
        now = time.time()
        with self._write() as connection:
            _ask(connection, list(runs), submission=submission, now=now)

    @reconnecting
    def claim(self, identity: str, *, owner: Owner) -> bool:
        """Lease a run that nobody holds and that has no result. False when it is held or finished."""
        change = (
            _runs.update()
            .where(_runs.c.identity == identity, _runs.c.state.in_(CLAIMABLE))
            .values(
                state="leased", reason=None, attempts=_runs.c.attempts + 1, heartbeat=DatabaseTime(), **_owner_columns(owner)
            )
        )
        return self._changed(change)

    @reconnecting
    def start(self, identity: str, *, owner: Owner) -> bool:
        """From leased to running; False when the lease is lost."""
        change = _held(identity, owner=owner).values(state="running", heartbeat=DatabaseTime())
        return self._changed(change)

    @reconnecting
    def beat(self, identity: str, *, owner: Owner, step: int | None = None) -> bool:
        """Renew a lease, and say how far the run is where that is known; False when the lease is lost."""
        told = {"step": step} if step is not None else {}
        return self._changed(_held(identity, owner=owner).values(heartbeat=DatabaseTime(), **told))

    @reconnecting
    def beat_submission(self, submission: str, *, owner: Owner) -> bool:
        """Say that a submission still goes on; one that was taken for dead meanwhile is running again.

        False when it has ended, or another process goes on with it.
        """
        table = _submissions.c
        mine = sql.and_(table.host == owner.host, table.pid == owner.pid, table.process_started == owner.started)
        running = sql.and_(table.state == "running", sql.or_(mine, table.host.is_(None)))
        revived = sql.and_(table.state == "failed", table.facts.is_(None), table.reason.contains(SILENT))
        change = _submissions.update().where(table.submission == submission, sql.or_(running, revived))
        values = {"state": "running", "reason": None, "finished": None, "heartbeat": DatabaseTime()}
        return self._changed(change.values(**values, **_owner_columns(owner)))

    @reconnecting
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
        return self.spending(lambda: self._changed(change), left=0)

    @reconnecting
    def reopen(self, identity: str, *, reason: str) -> None:
        """Take back a result whose files are gone, so that the run can be claimed again."""
        self._changed(
            _runs.update()
            .where(_runs.c.identity == identity, _runs.c.state.in_(FINISHED))
            .values(state="failed", reason=reason, step=0, metrics="{}")
        )

    @reconnecting
    def run(self, identity: str) -> LedgerRun | None:
        """One run, or None when it is unknown."""
        return next(iter(self.runs([identity])), None)

    @reconnecting
    def runs(self, identities: Iterable[str]) -> list[LedgerRun]:
        """Those of the runs that are known."""
        with self._read() as connection:
            rows = connection.execute(_runs.select().where(_runs.c.identity.in_(list(identities))))
            return [run_of(row) for row in rows]

    @reconnecting
    def asked(self, submission: str, *, role: str | None = None) -> list[tuple[str, str, str, int]]:
        """(identity, variant, size, seed) of each run that a submission asked for, in one role (judged, trial) or all."""
        query = _asks.select().where(_asks.c.submission == submission)
        if role is not None:
            query = query.where(_asks.c.role == role)
        with self._read() as connection:
            rows = connection.execute(query)
            return [(row.identity, row.variant, row.size, row.seed) for row in rows]

    @reconnecting
    def submissions(self, study: str | None = None) -> list[Submission]:
        """Submissions, newest first, of one study or of all."""
        query = sql.select(*_HEADS).order_by(_submissions.c.created.desc())
        if study is not None:
            query = query.where(_submissions.c.study == study)
        with self._read() as connection:
            return [submission_of(row) for row in connection.execute(query)]

    @reconnecting
    def submission(self, name: str) -> Submission | None:
        """One submission, or None when it is unknown."""
        with self._read() as connection:
            found = connection.execute(sql.select(*_HEADS).where(_submissions.c.submission == name)).first()
        return submission_of(found) if found is not None else None

    @reconnecting
    def conclude(self, submission: str, *, state: str, reason: str | None, facts: dict[str, Any] | None) -> None:
        """Record how a submission ended, with everything its report says. Who executed it stays known."""
        values = {"state": state, "reason": reason, "finished": time.time(), "heartbeat": None}
        change = _submissions.update().where(_submissions.c.submission == submission)
        if facts is None:
            self.spending(lambda: self._changed(change.values(**values)), left=0)
        else:
            self._changed(change.values(facts=json.dumps(facts), **values))

    @reconnecting
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

    @reconnecting
    def facts_of(self, submission: str) -> dict[str, Any] | None:
        """What the report of a submission says; None when it has none."""
        query = sql.select(_submissions.c.facts).where(_submissions.c.submission == submission)
        with self._read() as connection:
            found = connection.execute(query).scalar_one_or_none()
        return json.loads(found) if found is not None else None

    @reconnecting
    def reported(self, study: str) -> list[str]:
        """The arguments under which a study has a report, newest first."""
        query = (
            sql.select(_submissions.c.arguments)
            .where(_submissions.c.study == study, _submissions.c.facts.is_not(None))
            .order_by(_submissions.c.created.desc())
        )
        with self._read() as connection:
            return list(dict.fromkeys(connection.execute(query).scalars()))

    @reconnecting
    def find(self, start: str) -> LedgerRun:
        """The run whose identity begins with `start`.

        Raises:
            InputError: there is none, or more than one.
        """
        query = _runs.select().where(_runs.c.identity.startswith(start, autoescape=True)).limit(2)
        with self._read() as connection:
            found = [run_of(row) for row in connection.execute(query)]
        if len(found) != 1:
            raise InputError(f"{'no run' if not found else 'more than one run'} begins with {quoted(start)}")
        return found[0]

    @reconnecting
    def nearest(self, meaning: dict[str, Any], *, identity: str) -> list[LedgerRun]:
        """The other runs of the same seed, from which a difference can be told."""
        with self._read() as connection:
            rows = [run_of(row) for row in connection.execute(_runs.select().where(_runs.c.identity != identity))]
        return [run for run in rows if run.meaning.get("seed") == meaning.get("seed")]

    @reconnecting
    def reconcile(self) -> list[str]:
        """Set right what dead processes left: their runs become failed, their submissions too; cancelled where a submission
        was asked to stop.

        Returns:
            Identities of the runs, and names of the submissions, whose owner is dead. The runs' checkpoints stay, so the
            next claim goes on from there.
        """
        with self._read() as connection:
            held = list(connection.execute(sql.select(*LEASE).where(_runs.c.state.in_(HELD))))
            open_ = list(connection.execute(sql.select(*EXECUTION).where(_submissions.c.state == "running")))
        dead = [(row, why) for row in held if (why := death_of_holder(row)) is not None]
        lost = [(row, why) for row in open_ if (why := death_of_executor(row)) is not None]
        if dead or lost:
            self.spending(lambda: self._end_all(dead, lost=lost), left=0)
        return [*(row.identity for row, _ in dead), *(row.submission for row, _ in lost)]

    def _end_all(self, dead: Sequence[tuple[Row[Any], str]], *, lost: Sequence[tuple[Row[Any], str]]) -> None:
        """End the runs and the submissions of dead owners, each with the reason."""
        with self._write() as connection:
            stopped = asked_to_stop(connection, of=lost)
            if dead:
                end_leases(connection, of=dead, stopped=stopped)
            end_executions(connection, of=lost, stopped=stopped)

    def _open(self) -> None:
        with self._telling("opened"), _making(self.workspace):
            bring_up(self.engine, workspace=self.workspace)
            with self.engine.begin() as connection:
                self.moved_from = settle(connection, workspace=self.workspace)
        if self.engine.dialect.name == "sqlite":
            keep(self.workspace.folder)

    def _changed(self, change: sql.Update) -> bool:
        with self._write() as connection:
            return connection.execute(change).rowcount > 0

    def spending(self, work: Callable[[], T], *, left: int | None = None) -> T:
        """Do what must be done on a full disk too, with the room that is kept for that, down to `left` bytes of it.

        By default as far as the workspace was opened for. Raises WorkspaceError where that does not suffice.
        """
        least = self.workspace.reserve_left if left is None else left
        while True:
            try:
                return work()
            except NoRoom:
                if not give_up(self.workspace.folder, left=least):
                    raise

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
        except DBAPIError as error:
            raise kind_of(error)(refused(error, workspace=self.workspace, done=done)) from None
        except OSError as error:
            raise WorkspaceError(f"{self.workspace.folder} cannot be written: {error.strerror or error}") from None


@contextmanager
def _making(workspace: Workspace) -> Iterator[None]:
    with (workspace.folder / "ledger.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ask(connection: Connection, runs: list[Mapping[str, Any]], *, submission: str, now: float) -> None:
    """Insert what is not there, each in one statement: another process may insert the same run at the same moment.

    All processes insert runs in one order, so that none waits for another that waits for it.
    """
    one_at_a_time(connection, what=ASKING, shared=True)
    for run in sorted(runs, key=lambda run: run["identity"]):
        known = {
            "identity": run["identity"],
            "meaning": json.dumps(run["meaning"], sort_keys=True),
            "state": "planned",
            "planned_steps": run["planned_steps"],
            "flops": run["flops"],
            "created": now,
        }
        connection.execute(insert(_runs, bind=connection).values(**known).on_conflict_do_nothing())
    for run in runs:
        ask = {key: run[key] for key in ("identity", "variant", "size", "seed", "role")}
        connection.execute(insert(_asks, bind=connection).values(submission=submission, **ask).on_conflict_do_nothing())


def _owner_columns(owner: Owner) -> dict[str, Any]:
    return {"host": owner.host, "pid": owner.pid, "process_started": owner.started}


def _same_owner(owner: Owner) -> sql.ColumnElement[bool]:
    return sql.and_(_runs.c.host == owner.host, _runs.c.pid == owner.pid, _runs.c.process_started == owner.started)


def _held(identity: str, *, owner: Owner) -> sql.Update:
    return _runs.update().where(_runs.c.identity == identity, _runs.c.state.in_(HELD), _same_owner(owner))
