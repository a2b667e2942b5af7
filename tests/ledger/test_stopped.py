"""What a process left that was asked to stop, and died before it could say that it had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from knockout.ledger.inventory import enter_result, left_by_the_dead
from knockout.ledger.process import Owner, this_process
from knockout.ledger.stops import Wanted, request_stop
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import open_workspace

GONE = Owner(this_process().host, 2**22 + 1, "never")
USER = Wanted("cancelled", "stopped by the user")
ASK = {"identity": "a" * 20, "meaning": {"seed": 0}, "planned_steps": 10, "flops": 1.0, "variant": "v", "size": "pico",
       "seed": 0, "role": "judged"}  # fmt: skip


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger with a submission, and a run that it held, of a process that is gone."""
    ledger = Ledger(open_workspace(tmp_path / "home"))
    ledger.submit("walked", study="x", plan="", owner=GONE, runs=[ASK])
    assert ledger.claim("a" * 20, owner=GONE)
    yield ledger
    ledger.close()


def ends(ledger: Ledger) -> list[tuple[str, str | None]]:
    run, submission = ledger.run("a" * 20), ledger.submission("walked")
    assert run is not None
    assert submission is not None
    return [(submission.state, submission.reason), (run.state, run.reason)]


def test_it_was_stopped_and_so_were_its_runs(ledger: Ledger):
    request_stop(ledger, submissions=["walked"], wanted=USER)
    assert set(ledger.reconcile()) == {"walked", "a" * 20}
    run = f"stopped by the user; {GONE} died while it held the run"
    assert ends(ledger) == [("cancelled", "stopped by the user"), ("cancelled", run)]
    known = ledger.submission("walked")
    assert known is not None
    assert known.owner == GONE, "who it was stays known: nobody is left to tell Prefect of it"
    assert ledger.claim("a" * 20, owner=this_process()), "the same command goes on"


def test_a_result_that_it_had_sealed_is_taken_up(ledger: Ledger):
    request_stop(ledger, submissions=["walked"], wanted=USER)
    ledger.reconcile()
    assert left_by_the_dead(ledger) == ["a" * 20]
    sealed = {"outcome": "done", "reason": None, "step": 10, "metrics": {"val_loss": 1.0}, "seconds": 1.0}
    assert enter_result(ledger, "a" * 20, result=sealed)
    assert ends(ledger)[1] == ("done", None)


@pytest.mark.parametrize("wanted", [None, Wanted("timed-out", "the study's limit of 1 s")], ids=["not asked", "time over"])
def test_one_that_was_not_or_has_yet_to_conclude_has_failed(ledger: Ledger, wanted: Wanted | None):
    if wanted is not None:
        request_stop(ledger, submissions=["walked"], wanted=wanted)
    ledger.reconcile()
    assert ends(ledger) == [("failed", f"{GONE} died"), ("failed", f"{GONE} died while it held the run")]
