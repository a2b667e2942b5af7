"""A ledger of thousands of runs: what each command does first takes no time that anyone notices."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import sqlalchemy as sql

from knockout.ledger.inventory import cited, entries, every_ask, every_submission
from knockout.ledger.process import Owner, this_process
from knockout.ledger.store import Ledger
from knockout.ledger.tables import asks, runs
from knockout.ledger.workspace import open_workspace

RUNS = 5_000
GONE = Owner(this_process().host, 2**22 + 1, "never")


@pytest.mark.parametrize(("state", "dead"), [("done", 0), ("running", RUNS)])
def test_reconciling_5000_runs_takes_under_a_second(tmp_path: Path, state: str, dead: int):
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
    assert seconds < 1.0
    assert len(entries(ledger)) == len(every_ask(ledger)) == RUNS
    assert cited(every_submission(ledger)) == frozenset()
    ledger.close()
    print(f"{RUNS} runs, {dead} of them dead: {seconds:.3f} s")
