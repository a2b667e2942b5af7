"""What `knockout status STUDY` shows: all that goes on, newest first, and what waits for the next worker is no failure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from knockout.cli.standing import overview, standing
from knockout.ledger.lost import LOST_SECONDS, hand_on, take_over
from knockout.ledger.process import TOLD, Owner, host_name, this_process
from knockout.ledger.stops import Wanted, request_stop
from knockout.ledger.store import Ledger
from knockout.ledger.tables import submissions
from knockout.ledger.workspace import open_workspace
from knockout.submission.requests import Request, withdraw, write_request

GONE = Owner(host_name(), 4_194_305, "never")
"""A process that no kernel of 64 bits numbers: it is dead."""
NEXT = "goes on with the next worker of pool 'gpus'"
RUN = {
    "meaning": {"seed": 0},
    "planned_steps": 10,
    "flops": 1.0,
    "variant": "v",
    "size": "pico",
    "seed": 0,
    "role": "judged",
}


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    opened = Ledger(open_workspace(tmp_path / "home"))
    yield opened
    opened.close()


def submit(ledger: Ledger, name: str, *, owner: Owner, pool: str | None = "gpus", created: float | None = None) -> None:
    """A submission with one run, both in the hands of a process."""
    if pool is not None:
        request = Request(name, "small", str(ledger.workspace.folder), pool, handed=time.time())
        write_request(request, workspace=ledger.workspace)
    ledger.submit(name, study="small", plan="", owner=owner, runs=[{**RUN, "identity": f"run of {name}"}])
    assert ledger.claim(f"run of {name}", owner=owner)
    if created is not None:
        set_column(ledger, name, created=created)


def set_column(ledger: Ledger, name: str, **values: float) -> None:
    with ledger.engine.begin() as connection:
        connection.execute(submissions.update().where(submissions.c.submission == name).values(**values))


def shown(ledger: Ledger, name: str = "small") -> dict[str, tuple[str, str | None]]:
    """State and reason of each submission that is shown, in their order."""
    data = standing(ledger, name=name).data
    return {one["submission"]: (one["state"], one["reason"]) for one in (data, *data["others"])}


def test_what_a_dead_process_left_waits_for_the_next_worker_of_its_pool(ledger: Ledger):
    submit(ledger, "walked", owner=GONE)
    ledger.reconcile()
    waits = ("waiting", f"{GONE} died; {NEXT}")
    assert shown(ledger) == shown(ledger, "walked") == {"walked": waits}
    (one,) = overview(ledger).data["submissions"]
    assert (one["state"], one["reason"]) == waits
    (run,) = standing(ledger, name="walked").data["of"]
    assert (run["state"], run["reason"]) == ("waiting", f"{GONE} died while it held the run")
    assert [one.state for one in ledger.submissions()] == ["failed"], "the ledger's own word"

    assert take_over(ledger, submission="walked", owner=this_process())
    assert shown(ledger) == {"walked": ("running", None)}


def test_what_was_told_to_end_waits_and_so_do_its_runs_until_they_are_taken(ledger: Ledger):
    submit(ledger, "walked", owner=this_process())
    reason = f"{this_process()} {TOLD}"
    ledger.finish(
        "run of walked", owner=this_process(), state="failed", reason=reason, step=4, seconds=1.0, metrics={}
    )  # fmt: skip
    hand_on(ledger, submission="walked", owner=this_process(), reason=reason)
    assert shown(ledger) == {"walked": ("waiting", f"{reason}; {NEXT}")}
    assert take_over(ledger, submission="walked", owner=this_process())
    (run,) = standing(ledger, name="walked").data["of"]
    assert (run["state"], run["step"]) == ("waiting", 4)
    assert ledger.claim("run of walked", owner=this_process())
    (run,) = standing(ledger, name="walked").data["of"]
    assert run["state"] != "waiting"


def test_what_nobody_goes_on_with_has_failed(ledger: Ledger):
    for name, pool in (("here", None), ("old", "gpus"), ("stopped", "gpus"), ("late", "gpus")):
        submit(ledger, name, owner=GONE, pool=pool)
    ledger.reconcile()
    set_column(ledger, "old", finished=time.time() - LOST_SECONDS)
    request_stop(ledger, submissions=["stopped"])
    request_stop(ledger, submissions=["late"], wanted=Wanted("timed-out", "the study's limit of 5 s"))
    states = {one["submission"]: one["state"] for one in overview(ledger).data["submissions"]}
    assert states == {"here": "failed", "old": "failed", "stopped": "failed", "late": "waiting"}, "it has yet to conclude"
    assert shown(ledger, "here") == {"here": ("failed", f"{GONE} died")}


def test_all_of_a_study_that_goes_on_is_shown_newest_first_or_else_the_newest(ledger: Ledger):
    for name, created in (("first", 10.0), ("second", 20.0), ("a", 30.0), ("b", 30.0), ("third", 40.0)):
        submit(ledger, name, owner=this_process(), created=created)
    ledger.conclude("third", state="done", reason=None, facts={})
    write_request(Request("handed", "small", ".", "gpus", handed=25.0), workspace=ledger.workspace)
    assert list(shown(ledger)) == ["b", "a", "handed", "second", "first"]
    assert shown(ledger)["handed"] == ("submitted", "on pool gpus")
    page = standing(ledger, name="small")
    assert page.data["of"][0]["identity"] == "run of b"
    assert [one["of"][0]["identity"] for one in page.data["others"] if one["of"]] == [
        "run of a",
        "run of second",
        "run of first",
    ]
    assert list(shown(ledger, "third")) == ["third"]
    for name in ("first", "second", "a", "b"):
        ledger.conclude(name, state="done", reason=None, facts={})
    request_stop(ledger, submissions=["handed"])
    assert list(shown(ledger)) == ["third"]


def test_what_was_called_off_before_a_worker_began_it_is_shown_so(ledger: Ledger):
    write_request(Request("handed", "small", ".", "gpus", handed=time.time()), workspace=ledger.workspace)
    withdraw("handed", ledger=ledger)
    assert shown(ledger) == shown(ledger, "handed") == {"handed": ("cancelled", "stopped by `knockout stop`")}
    (one,) = overview(ledger).data["submissions"]
    assert one["state"] == "cancelled"
    submit(ledger, "later", owner=this_process())
    assert list(shown(ledger)) == ["later"]
