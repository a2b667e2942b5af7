"""Submissions that lost their process: who goes on with them, and what the one that was taken for dead learns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from knockout.errors import InputError
from knockout.ledger.leases import LEASE_SECONDS, VARIABLE, lease_seconds
from knockout.ledger.lost import LOST_SECONDS, lost_submissions, take_over
from knockout.ledger.process import Owner, this_process
from knockout.ledger.store import Ledger
from knockout.ledger.tables import submissions
from knockout.ledger.workspace import open_workspace

ELSEWHERE, OTHER = Owner("elsewhere", 1, "x"), Owner("other", 2, "y")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(open_workspace(tmp_path))
    opened.submit("walked", study="x", plan="", owner=ELSEWHERE, runs=[])
    yield opened
    opened.close()


def lose(ledger: Ledger, *, seconds: float = LEASE_SECONDS + 1) -> None:
    with ledger.engine.begin() as connection:
        connection.execute(submissions.update().values(heartbeat=submissions.c.heartbeat - seconds))
    assert ledger.reconcile() == ["walked"]


def test_a_lost_submission_is_taken_over_once_and_the_one_that_returns_has_no_more_say(ledger: Ledger):
    assert not take_over(ledger, submission="walked", owner=OTHER), "it is not lost"
    lose(ledger)
    assert [one.submission for one in lost_submissions(ledger)] == ["walked"]
    assert take_over(ledger, submission="walked", owner=OTHER)
    assert not take_over(ledger, submission="walked", owner=this_process())
    assert not ledger.beat_submission("walked", owner=ELSEWHERE)
    known = ledger.submission("walked")
    assert known is not None
    assert (known.state, known.owner, known.reason) == ("running", OTHER, None)
    assert ledger.beat_submission("walked", owner=OTHER)
    assert lost_submissions(ledger) == []


def test_what_ended_by_itself_or_was_lost_long_ago_is_left_alone(ledger: Ledger):
    lose(ledger)
    with ledger.engine.begin() as connection:
        connection.execute(submissions.update().values(finished=submissions.c.finished - LOST_SECONDS))
    assert lost_submissions(ledger) == []
    for state in ("done", "cancelled", "failed"):
        ledger.submit(state, study="x", plan="", owner=ELSEWHERE, runs=[])
        ledger.conclude(state, state=state, reason="its text is missing", facts={} if state == "done" else None)
        assert not take_over(ledger, submission=state, owner=OTHER)
    assert lost_submissions(ledger) == []


def test_leases_last_as_long_as_the_environment_says(monkeypatch: pytest.MonkeyPatch):
    assert lease_seconds() == LEASE_SECONDS
    monkeypatch.setenv(VARIABLE, "300")
    assert lease_seconds() == 300.0
    for wrong in ("a while", "1", "-5", "inf", "nan"):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(InputError, match="is not a length in seconds of at least 10"):
            lease_seconds()
