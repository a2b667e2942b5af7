"""Submissions that lost their process: who goes on with them, and what the one that was taken for dead learns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from knockout.errors import InputError
from knockout.ledger.leases import LEASE_SECONDS, VARIABLE, lease_seconds
from knockout.ledger.lost import (
    LOST_SECONDS,
    TAKE_OVER_SECONDS,
    cancel_lost,
    goes_on,
    hand_on,
    lost_submissions,
    take_over,
)
from knockout.ledger.process import TOLD, Owner, this_process
from knockout.ledger.stops import BY_COMMAND, Wanted, request_stop, stopped_among, wanted_stop
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


def test_a_submission_that_its_process_leaves_to_others_is_taken_over_at_once(ledger: Ledger):
    reason = f"{ELSEWHERE} {TOLD}"
    hand_on(ledger, submission="walked", owner=OTHER, reason=reason)
    assert lost_submissions(ledger) == [], "only who has it can leave it"
    hand_on(ledger, submission="walked", owner=ELSEWHERE, reason=reason)
    (left,) = lost_submissions(ledger)
    assert (left.state, left.reason, left.owner) == ("failed", reason, None)
    assert not ledger.beat_submission("walked", owner=ELSEWHERE), "who left it has no more say"
    assert take_over(ledger, submission="walked", owner=OTHER)


def test_a_lost_submission_that_is_stopped_is_taken_over_by_nobody(ledger: Ledger):
    assert not cancel_lost(ledger, submission="walked", owner=OTHER), "somebody has it"
    lose(ledger)
    assert cancel_lost(ledger, submission="walked", owner=OTHER)
    known = ledger.submission("walked")
    assert known is not None
    assert (known.state, known.reason) == (BY_COMMAND.state, BY_COMMAND.reason)
    assert wanted_stop(ledger, submission="walked") == BY_COMMAND, "its runs that are in work hear of it"
    assert not take_over(ledger, submission="walked", owner=ELSEWHERE)
    assert not ledger.beat_submission("walked", owner=ELSEWHERE)


def test_runs_count_on_a_lost_submission_for_a_while(ledger: Ledger):
    assert not goes_on(None)
    assert goes_on(ledger.submission("walked"))
    lose(ledger)
    assert goes_on(ledger.submission("walked")), "somebody is about to take it over"
    with ledger.engine.begin() as connection:
        connection.execute(submissions.update().values(finished=submissions.c.finished - TAKE_OVER_SECONDS))
    assert not goes_on(ledger.submission("walked"))
    ledger.submit("ended", study="x", plan="", owner=ELSEWHERE, runs=[])
    ledger.conclude("ended", state="failed", reason="its text is missing", facts=None)
    assert not goes_on(ledger.submission("ended"))


def test_the_first_who_asks_for_a_stop_says_what_the_work_comes_to(ledger: Ledger):
    limit = Wanted("timed-out", "the study's limit of 5 s")
    assert wanted_stop(ledger, submission="walked") is None
    request_stop(ledger, submissions=["walked"], wanted=limit)
    request_stop(ledger, submissions=["walked", "other"])
    assert wanted_stop(ledger, submission="walked") == limit
    assert wanted_stop(ledger, submission="other") == BY_COMMAND
    assert stopped_among(ledger, submissions=["walked", "third"]) == {"walked"}


def test_a_holder_tells_how_far_it_is_with_its_sign_of_life(ledger: Ledger):
    run = {"identity": "r", "meaning": {}, "planned_steps": 100, "flops": 1.0, "variant": "v", "size": "s", "seed": 0}
    ledger.ask("walked", runs=[{**run, "role": "judged"}])
    assert ledger.claim("r", owner=ELSEWHERE)
    assert ledger.beat("r", owner=ELSEWHERE, step=40)
    assert ledger.beat("r", owner=ELSEWHERE)
    assert not ledger.beat("r", owner=OTHER, step=90)
    known = ledger.run("r")
    assert known is not None
    assert known.step == 40


def test_leases_last_as_long_as_the_environment_says(monkeypatch: pytest.MonkeyPatch):
    assert lease_seconds() == LEASE_SECONDS
    monkeypatch.setenv(VARIABLE, "300")
    assert lease_seconds() == 300.0
    for wrong in ("a while", "1", "-5", "inf", "nan"):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(InputError, match="is not a length in seconds of at least 10"):
            lease_seconds()
