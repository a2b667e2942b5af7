"""Everything that a ledger knows, for whoever keeps a workspace in order; and how a run leaves it.

The invariant: a run leaves the ledger only under a lease of whoever removes it, and never while a running submission asks
for it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sql

from knockout.ledger.dialects import DatabaseTime, in_order_of_insertion, insert, member, one_at_a_time
from knockout.ledger.leases import HELD_TO_THE_END, NOBODY
from knockout.ledger.process import Owner, tells_death
from knockout.ledger.store import ASKING, FINISHED, HELD, PRUNED, Ledger, LedgerRun
from knockout.ledger.tables import asks, runs, submissions, telling

LEFT = ("failed", "cancelled")
"""The states of a run that its dead owner left."""


@dataclass(frozen=True)
class Entry:
    """A run, without what it came to."""

    identity: str
    state: str
    reason: str | None
    corpus: str
    """Digest of its corpus."""
    since: float
    """When it ended, or was first asked for; in seconds since 1970."""

    @property
    def held(self) -> bool:
        """Whether somebody works on it."""
        return self.state in HELD

    @property
    def finished(self) -> bool:
        """Whether there is a result."""
        return self.state in FINISHED


@dataclass(frozen=True)
class Ask:
    """What a submission asked for."""

    submission: str
    identity: str
    variant: str
    size: str
    seed: int
    role: str


@dataclass(frozen=True)
class Submitted:
    """A submission, its declaration, and what its report says."""

    submission: str
    study: str
    arguments: str
    plan: str
    state: str
    reason: str | None
    created: float
    mirrored: bool | None
    """Whether its runs are shown in MLflow; None where an older knockout did not say."""
    facts: dict[str, Any] | None


def entries(ledger: Ledger) -> dict[str, Entry]:
    """Every run by identity."""
    columns = (runs.c.identity, runs.c.state, runs.c.reason, runs.c.finished, runs.c.created)
    corpus = member(runs.c.meaning, name="corpus", bind=ledger.engine)
    with telling(ledger.workspace, done="read"), ledger.engine.connect() as connection:
        rows = connection.execute(sql.select(*columns, corpus.label("corpus")))
        found = [Entry(row.identity, row.state, row.reason, row.corpus or "", row.finished or row.created) for row in rows]
    return {entry.identity: entry for entry in found}


def every_ask(ledger: Ledger, *, of: Collection[str] | None = None) -> list[Ask]:
    """What all submissions, or only some, asked for, in that order."""
    query = asks.select() if of is None else asks.select().where(asks.c.submission.in_(of))
    with telling(ledger.workspace, done="read"), ledger.engine.connect() as connection:
        rows = connection.execute(query.order_by(in_order_of_insertion(connection)))
        return [Ask(row.submission, row.identity, row.variant, row.size, row.seed, row.role) for row in rows]


def every_submission(ledger: Ledger) -> list[Submitted]:
    """All submissions, oldest first."""
    return _submitted(ledger, submissions.select())


def owed_submissions(ledger: Ledger) -> list[Submitted]:
    """Ended submissions that are mirrored to MLflow, and are not known to be shown there as they are; oldest first."""
    table = submissions.c
    owed = (table.state != "running", table.mirrored.is_(True), table.shown.is_not(True))
    return _submitted(ledger, submissions.select().where(*owed))


def is_done(ledger: Ledger, *, plan: str) -> bool:
    """Whether a submission of this very plan is done."""
    query = sql.select(sql.exists().where(submissions.c.plan == plan, submissions.c.state == "done"))
    with telling(ledger.workspace, done="read"), ledger.engine.connect() as connection:
        return bool(connection.execute(query).scalar_one())


def note_shown(ledger: Ledger, submission: str) -> None:
    """Note that MLflow shows all of an ended submission. One that asked for a run which has no result stays to be looked
    at: whoever trains that run later changes what is to be shown.
    """
    open_ = sql.exists().where(
        asks.c.submission == submission, asks.c.identity == runs.c.identity, runs.c.state.not_in((*FINISHED, PRUNED))
    )
    change = submissions.update().where(submissions.c.submission == submission, submissions.c.state != "running", ~open_)
    with telling(ledger.workspace, done="written"), ledger.engine.begin() as connection:
        connection.execute(change.values(shown=True))


def _submitted(ledger: Ledger, query: sql.Select[Any]) -> list[Submitted]:
    with telling(ledger.workspace, done="read"), ledger.engine.connect() as connection:
        rows = connection.execute(query.order_by(submissions.c.created))
        return [
            Submitted(
                row.submission,
                row.study,
                row.arguments,
                row.plan,
                row.state,
                row.reason,
                row.created,
                row.mirrored,
                json.loads(row.facts) if row.facts is not None else None,
            )
            for row in rows
        ]


def citations(known: Iterable[Submitted]) -> dict[str, frozenset[str]]:
    """The identities of the runs that the newest reports of a study name, under any arguments and trials included; by study.

    `known` are submissions, oldest first.
    """
    newest = {(one.study, one.arguments): one.facts for one in known if one.facts is not None}
    found: dict[str, frozenset[str]] = {}
    for (study, _), facts in newest.items():
        found[study] = found.get(study, frozenset()) | frozenset(_named(facts))
    return found


def adopt(ledger: Ledger, *, run: LedgerRun, flops: float) -> bool:
    """Enter a run that the ledger does not know with the result that it has; False when it is known by now."""
    row = {
        "identity": run.identity,
        "meaning": json.dumps(run.meaning, sort_keys=True),
        "state": run.state,
        "reason": run.reason,
        "step": run.step,
        "planned_steps": run.planned_steps,
        "flops": flops,
        "seconds": run.seconds,
        "metrics": json.dumps(run.metrics),
        "created": time.time(),
        "finished": time.time(),
    }
    with telling(ledger.workspace, done="written"), ledger.engine.begin() as connection:
        return connection.execute(insert(runs, bind=connection).values(**row).on_conflict_do_nothing()).rowcount > 0


def left_by_the_dead(ledger: Ledger) -> list[str]:
    """Identities of the runs that have failed, or were cancelled, because their owner died while it held them."""
    query = sql.select(runs.c.identity, runs.c.reason).where(runs.c.state.in_(LEFT), runs.c.reason.contains(HELD_TO_THE_END))
    with telling(ledger.workspace, done="read"), ledger.engine.connect() as connection:
        return [row.identity for row in connection.execute(query) if tells_death(row.reason.rpartition("; ")[2])]


def enter_result(ledger: Ledger, identity: str, *, result: Mapping[str, Any]) -> bool:
    """Record the sealed result of a run that its dead owner did not tell, or that the ledger has only just been asked for;
    False when somebody has claimed the run since.
    """
    open_ = runs.c.state.in_((*LEFT, "planned"))
    change = runs.update().where(runs.c.identity == identity, open_, runs.c.host.is_(None))
    ended = sql.func.coalesce(runs.c.finished, time.time())
    told = {"state": result["outcome"], "reason": result["reason"], "step": result["step"], "finished": ended}
    measured = {"metrics": json.dumps(result["metrics"]), "seconds": runs.c.seconds + result["seconds"]}
    with telling(ledger.workspace, done="written"), ledger.engine.begin() as connection:
        return connection.execute(change.values(**told, **measured)).rowcount > 0


def take(ledger: Ledger, identity: str, *, owner: Owner) -> bool:
    """Lease a run that is to be removed; False when somebody holds it, or a running submission asks for it."""
    wanted = sql.exists().where(
        asks.c.identity == runs.c.identity, asks.c.submission == submissions.c.submission, submissions.c.state == "running"
    )
    change = (
        runs.update()
        .where(runs.c.identity == identity, runs.c.state.not_in(HELD), ~wanted)
        .values(
            state="leased",
            reason="is being removed",
            heartbeat=DatabaseTime(),
            host=owner.host,
            pid=owner.pid,
            process_started=owner.started,
        )
    )

    def lease() -> bool:
        with telling(ledger.workspace, done="written"), ledger.engine.begin() as connection:
            one_at_a_time(connection, what=ASKING)
            return connection.execute(change).rowcount > 0

    return ledger.spending(lease)


def give_back(ledger: Ledger, entry: Entry, *, owner: Owner) -> None:
    """End the lease of a run that stays after all, as it was."""
    freed = {"state": entry.state, "reason": entry.reason, "heartbeat": None, **NOBODY}

    def free() -> None:
        with telling(ledger.workspace, done="written"), ledger.engine.begin() as connection:
            connection.execute(runs.update().where(runs.c.identity == entry.identity, *_leased_by(owner)).values(**freed))

    ledger.spending(free)


def forget(ledger: Ledger, identity: str, *, owner: Owner) -> None:
    """Take a leased run out of the ledger, and out of what was asked for."""

    def remove() -> None:
        with telling(ledger.workspace, done="written"), ledger.engine.begin() as connection:
            if connection.execute(runs.delete().where(runs.c.identity == identity, *_leased_by(owner))).rowcount:
                connection.execute(asks.delete().where(asks.c.identity == identity))

    ledger.spending(remove)


def _leased_by(owner: Owner) -> tuple[sql.ColumnElement[bool], ...]:
    return runs.c.host == owner.host, runs.c.pid == owner.pid, runs.c.process_started == owner.started


def _named(facts: Mapping[str, Any]) -> Iterable[str]:
    yield from (run["identity"] for run in facts["runs"])
    for search in facts["study"].get("tuned") or ():
        for trial in search["trials"]:
            yield from trial["identities"]
