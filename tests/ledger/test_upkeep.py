"""A ledger of thousands of runs: what each command does first takes no time that anyone notices."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sql

from knockout.ledger.inventory import citations, entries, every_ask, every_submission
from knockout.ledger.leases import HEARTBEAT_SECONDS
from knockout.ledger.process import Owner, this_process
from knockout.ledger.stops import stop_requested
from knockout.ledger.store import Ledger
from knockout.ledger.tables import asks, runs
from knockout.ledger.workspace import open_workspace
from knockout.submission.ticking import TICK_SECONDS

RUNS = 5_000
GONE = Owner(this_process().host, 2**22 + 1, "never")


@pytest.mark.parametrize(("state", "dead"), [("done", 0), ("running", RUNS)])
def test_reconciling_5000_runs_takes_three_statements(tmp_path: Path, state: str, dead: int):
    ledger = Ledger(open_workspace(tmp_path / "home"))
    held = {"host": GONE.host, "pid": GONE.pid, "process_started": GONE.started} if dead else {}
    meaning = '{"corpus": "c", "seed": 0, "architecture": "' + 2_000 * "x" + '"}'
    known = {"meaning": meaning, "state": state, "planned_steps": 10, "flops": 1.0, "created": 0.0, **held}
    ask = {"submission": "s", "variant": "v", "size": "pico", "seed": 0, "role": "judged"}
    with ledger.engine.begin() as connection:
        connection.execute(runs.insert(), [{**known, "identity": f"{number:020d}"} for number in range(RUNS)])
        connection.execute(asks.insert(), [{**ask, "identity": f"{number:020d}"} for number in range(RUNS)])
    statements: list[str] = []
    sql.event.listen(ledger.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    started = time.process_time()
    assert len(ledger.reconcile()) == dead
    seconds = time.process_time() - started
    assert len(statements) <= 3, statements
    assert len(entries(ledger)) == len(every_ask(ledger)) == RUNS
    assert citations(every_submission(ledger)) == {}
    ledger.close()
    print(f"{RUNS} runs, {dead} of them dead: {seconds:.3f} s")


def test_leases_and_heartbeats_cost_under_half_a_percent_of_a_run(tmp_path: Path):
    """What a submission with one run does for its signs of life, in processor seconds for each second of the run."""
    ledger, me = Ledger(open_workspace(tmp_path / "home")), this_process()
    ask = {"meaning": {"seed": 0}, "planned_steps": 10, "flops": 1.0, "variant": "v", "size": "pico", "seed": 0}
    ledger.submit("s", study="x", plan="", owner=me, runs=[{**ask, "identity": "a", "role": "judged"}])
    assert ledger.claim("a", owner=me)

    def seconds(doing: Callable[[], object]) -> float:
        began = time.process_time()
        for _ in range(100):
            doing()
        return (time.process_time() - began) / 100

    beats = seconds(lambda: ledger.beat("a", owner=me)) + seconds(lambda: ledger.beat_submission("s", owner=me))
    share = beats / HEARTBEAT_SECONDS + seconds(lambda: stop_requested(ledger, submission="s")) / TICK_SECONDS
    ledger.close()
    print(f"signs of life cost {share:.3%} of a run")
    assert share < 0.005
