"""Which submissions Prefect has a flow run of, and in which of its databases.

The invariant: a submission that is to have one is owed until the database that Prefect has now is known to hold it; a
database that was lost or replaced has another mark, and is told anew.
"""

from __future__ import annotations

import sqlalchemy as sql

from knockout.ledger.rows import Submission, submission_of
from knockout.ledger.store import Ledger
from knockout.ledger.tables import flow_runs, submissions, telling

MOST = 100
"""So many submissions are told at a time: some seconds. After the loss of a long history the next commands go on."""


def owed_flow_runs(ledger: Ledger, *, database: str) -> list[Submission]:
    """Ended submissions that the database of this mark is not known to hold, newest first, `MOST` of them.

    Raises WorkspaceError.
    """
    told = flow_runs.c.database
    elsewhere = sql.or_(told.is_(None), told < database, told > database)  # ranges of the index, unlike an inequality
    columns = [column for column in submissions.c if column.name not in ("plan", "facts")]
    query = (
        sql.select(*columns)
        .join(flow_runs, flow_runs.c.submission == submissions.c.submission)
        .where(elsewhere, submissions.c.state != "running")
        .order_by(submissions.c.created.desc())
        .limit(MOST)
    )
    with telling(ledger.workspace, done="read"), ledger.engine.connect() as connection:
        return [submission_of(row) for row in connection.execute(query)]


def note_flow_run(ledger: Ledger, submission: str, *, database: str) -> None:
    """Note that the database of this mark holds a submission as it ended. Raises WorkspaceError."""
    change = flow_runs.update().where(flow_runs.c.submission == submission)
    with telling(ledger.workspace, done="written"), ledger.engine.begin() as connection:
        connection.execute(change.values(database=database))
