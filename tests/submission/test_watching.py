"""How submissions stand: what a submission that was cut off had seen, and a table that fits a narrow terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from knockout.cli.following import Follower
from knockout.ledger.process import this_process
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import open_workspace
from knockout.submission.tables import minute, run_table
from knockout.submission.watching import RunState, submissions

NAMES = ("a", "b", "c")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(open_workspace(tmp_path / "home"))
    yield opened
    opened.close()


def submit(ledger: Ledger, submission: str) -> None:
    asked = {"meaning": {"seed": 0}, "planned_steps": 10, "flops": 1.0, "variant": "v", "size": "pico", "role": "judged"}
    runs = [{**asked, "identity": name, "seed": place} for place, name in enumerate(NAMES)]
    ledger.submit(submission, study="x", plan="", owner=this_process(), runs=runs)


def finish(ledger: Ledger, name: str) -> None:
    assert ledger.claim(name, owner=this_process())
    ledger.finish(
        name, owner=this_process(), state="done", reason=None, step=10, seconds=1.0, metrics={"val_loss": 1.5, "speed": 7.0}
    )


def test_what_others_finish_later_is_not_counted_for_a_submission_that_was_cancelled(ledger: Ledger):
    submit(ledger, "first")
    finish(ledger, "a")
    ledger.conclude("first", state="cancelled", reason="stopped", facts=None)
    submit(ledger, "second")
    for name in ("b", "c"):
        finish(ledger, name)
    counts = {one.submission: (one.finished, one.runs) for one in submissions(ledger, lost={})}
    assert counts == {"first": (1, 3), "second": (3, 3)}


def test_each_run_that_ends_is_told_once(
    ledger: Ledger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("knockout.cli.following.LOOK_SECONDS", 0.0)
    follower = Follower(ledger, "second", "gpus")
    follower.look(None)
    follower.look(None)
    submit(ledger, "first")
    finish(ledger, "a")
    submit(ledger, "second")
    follower.look(ledger.submission("second"))
    finish(ledger, "b")
    follower.look(ledger.submission("second"))
    follower.look(ledger.submission("second"))
    finish(ledger, "c")
    ledger.conclude("second", state="done", reason=None, facts=None)
    follower.look(ledger.submission("second"))
    lines = [line.partition("] ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "waiting for a worker of pool 'gpus'",
        f"{this_process()} works on it",
        "1 of 3 runs are there already",
        "(2 of 3) v · pico · s1: val_loss 1.500",
        "(3 of 3) v · pico · s2: val_loss 1.500",
    ]


def shown(runs: list[RunState], *, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    with console.capture() as captured:
        console.print(run_table(runs))
    return captured.get()


def test_state_step_and_process_are_whole_on_eighty_columns():
    where = "process 12345 on a-machine-with-a-long-name.example.org"
    runs = [
        RunState("0123456789abcdef", "sandwich-normalised · nano · s12345", "running", None, 1234, 9765, where),
        RunState("fedcba9876543210", "baseline · nano · s12345", "failed", "killed by the kernel for memory", 5, 9765, None),
    ]
    text = shown(runs, width=80)
    assert max(map(len, text.splitlines())) <= 80
    for word in ("running", "failed", "1,234 of 9,765", "01234567", "state", "step", "where"):
        assert word in text
    folded = "".join(text.split())
    assert "…" not in text
    assert all(part in folded for part in ("12345", "memory"))
    assert "where" not in shown([RunState("0123456789abcdef", "b · nano · s1", "done", None, 9, 9, None)], width=80)


def test_a_time_is_told_with_its_zone():
    assert minute(0.0, zone="Europe/Berlin") == "1970-01-01 01:00 CET"
    assert minute(1_800_000_000.0, zone="UTC") == "2027-01-15 08:00 UTC"
