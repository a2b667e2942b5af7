"""The ledger in a real PostgreSQL database: several processes, a server that restarts, hosts with other clocks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sql

from knockout.errors import WorkspaceError
from knockout.ledger import ticks
from knockout.ledger.conclusions import conclusions
from knockout.ledger.inventory import entries, every_ask, forget, take
from knockout.ledger.process import Owner, this_process
from knockout.ledger.stops import request_stop, stop_requested
from knockout.ledger.store import Ledger
from knockout.ledger.tables import runs as table
from knockout.ledger.workspace import open_workspace
from knockout.services.database import FILE, VARIABLE, Database, find_database
from knockout.services.environment import quiet_environment

ELSEWHERE = Owner("elsewhere", 1, "x")
DEADLINE_SECONDS = 60.0


def ask(name: str) -> dict:
    return {
        "identity": name, "meaning": {"seed": 0, "corpus": "c"}, "planned_steps": 10, "flops": 1.0, "variant": "baseline",
        "size": "pico", "seed": 0, "role": "judged",
    }  # fmt: skip


@pytest.fixture
def ledger(database: Database, tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(open_workspace(tmp_path / "home"))
    yield opened
    opened.close()


def submit(ledger: Ledger, *names: str, submission: str = "s1") -> None:
    ledger.submit(submission, study="x", plan="", owner=this_process(), runs=[ask(name) for name in names])


def processes(code: str, *, home: Path, count: int, arguments: tuple[str, ...] = ()) -> list[subprocess.Popen[str]]:
    """Processes with a workspace of their own each, which share only the database."""
    return [
        subprocess.Popen(
            [sys.executable, "-c", code, str(home / str(number)), *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for number in range(count)
    ]


CLAIM = """if True:
    import json, sys, time
    from pathlib import Path
    from knockout.ledger.process import this_process
    from knockout.ledger.store import Ledger
    from knockout.ledger.workspace import open_workspace
    ledger, me = Ledger(open_workspace(Path(sys.argv[1]))), this_process()
    names = [f"run{number:03d}" for number in range(40)]
    same = dict(meaning={"seed": 0}, planned_steps=1, flops=1.0, variant="v", size="s", seed=0, role="judged")
    asks = [dict(identity=name, **same) for name in names]
    ledger.submit(f"s{me.pid}", study="x", plan="", owner=me, runs=asks if me.pid % 2 else asks[::-1])
    time.sleep(max(0.0, float(sys.argv[2]) - time.time()))
    print(json.dumps([name for name in names if ledger.claim(name, owner=me)]))
"""


def test_six_processes_of_their_own_workspaces_claim_each_run_once(database: Database, tmp_path: Path):
    started = processes(CLAIM, home=tmp_path, count=6, arguments=(str(time.time() + 4.0),))
    said = [process.communicate(timeout=DEADLINE_SECONDS)[0] for process in started]
    claimed = Counter(name for line in said for name in json.loads(line))
    assert claimed == {f"run{number:03d}": 1 for number in range(40)}


BEAT = """if True:
    import sys, time
    from pathlib import Path
    from knockout.ledger.process import this_process
    from knockout.ledger.store import Ledger
    from knockout.ledger.workspace import open_workspace
    ledger, me = Ledger(open_workspace(Path(sys.argv[1]))), this_process()
    name = f"run{me.pid}"
    ask = dict(identity=name, meaning={"seed": 0}, planned_steps=1, flops=1.0, variant="v", size="s", seed=0, role="judged")
    ledger.submit(f"s{me.pid}", study="x", plan="", owner=me, runs=[ask])
    assert ledger.claim(name, owner=me) and ledger.start(name, owner=me)
    print("working", flush=True)
    until = time.monotonic() + 4.0
    while time.monotonic() < until:
        assert ledger.beat(name, owner=me)
        assert ledger.run(name).state == "running"
    assert ledger.finish(name, owner=me, state="done", reason=None, step=1, seconds=1.0, metrics={})
    print(ledger.run(name).state)
"""


def test_a_server_that_restarts_under_them_holds_processes_up_and_no_more(database, postgres_server, tmp_path):
    started = processes(BEAT, home=tmp_path, count=2)
    assert [process.stdout.readline() for process in started] == ["working\n"] * 2
    postgres_server.restart()
    postgres_server.stop(mode="immediate")  # as when its machine loses power
    time.sleep(1.0)
    postgres_server.start()
    assert [process.communicate(timeout=DEADLINE_SECONDS)[0] for process in started] == ["done\n"] * 2


def test_leases_live_by_the_databases_clock(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    submit(ledger, "a")
    a_day = 86_400.0
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - a_day)  # this host's clock is a day behind, and then one ahead
    assert ledger.claim("a", owner=ELSEWHERE)
    monkeypatch.setattr(time, "time", lambda: real() + a_day)
    assert ledger.reconcile() == []
    with ledger.engine.begin() as connection:
        connection.execute(table.update().values(heartbeat=table.c.heartbeat - 61.0))
    assert ledger.reconcile() == ["a"]
    lost = ledger.run("a")
    assert lost is not None
    assert (lost.state, lost.owner) == ("failed", None)
    assert not ledger.finish("a", owner=ELSEWHERE, state="done", reason=None, step=1, seconds=1.0, metrics={})


def test_everything_that_is_asked_of_a_ledger_is_answered(ledger: Ledger):
    submit(ledger, "b", "a")
    assert ledger.find("a").meaning["corpus"] == "c"
    assert {name: entry.corpus for name, entry in entries(ledger).items()} == {"a": "c", "b": "c"}
    assert [one.identity for one in every_ask(ledger)] == ["b", "a"]
    assert not take(ledger, "a", owner=this_process()), "a running submission asks for it"
    request_stop(ledger, submissions=["s1"])
    request_stop(ledger, submissions=["s1"])
    assert stop_requested(ledger, submission="s1")
    ledger.conclude("s1", state="done", reason=None, facts={"runs": []})
    assert [one.facts for one in conclusions(ledger, study="x")] == [{"runs": []}]
    assert take(ledger, "a", owner=this_process())
    forget(ledger, "a", owner=this_process())
    assert list(entries(ledger)) == ["b"]


def test_a_due_time_is_taken_once(ledger: Ledger):
    assert ticks.take_tick(ledger, schedule="nightly", due=1.0, owner=this_process()) is None
    assert ticks.take_tick(ledger, schedule="nightly", due=2.0, owner=this_process()) is not None


def test_an_older_ledger_gets_the_columns_that_it_lacks_and_a_newer_one_is_left_alone(ledger: Ledger):
    with ledger.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE submissions DROP COLUMN mirrored")
    Ledger(ledger.workspace).close()
    submit(ledger, "a")
    with ledger.engine.begin() as connection:
        connection.execute(sql.text("UPDATE about SET format = 99"))
    with pytest.raises(WorkspaceError, match="made by a newer knockout"):
        Ledger(ledger.workspace)


def test_the_password_is_nowhere_to_be_read(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert "open-sesame" not in repr(database) + database.shown
    assert not [name for name in quiet_environment(tmp_path) if name == VARIABLE]
    monkeypatch.setenv(VARIABLE, database.address.replace("open-sesame", "wrong-word"))
    with pytest.raises(WorkspaceError) as refused:
        Ledger(open_workspace(tmp_path / "home"))
    assert "password authentication failed" in str(refused.value)
    assert "wrong-word" not in str(refused.value)


def test_an_address_may_lie_in_the_workspace_and_must_be_postgresqls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert find_database(tmp_path) is None
    (tmp_path / FILE).write_text("postgres://user:word@host:5/name\n")
    found = find_database(tmp_path)
    assert found is not None
    assert found.shown == "postgresql://host:5/name"
    assert found.url(driver="asyncpg") == "postgresql+asyncpg://user:word@host:5/name"
    monkeypatch.setenv(VARIABLE, "mysql://user:word@host/name")
    with pytest.raises(WorkspaceError, match=r"\$KNOCKOUT_DATABASE: not the address of a PostgreSQL database"):
        find_database(tmp_path)
    monkeypatch.setenv(VARIABLE, "postgresql://user:word@host:port/name")
    with pytest.raises(WorkspaceError, match="cannot be read") as refused:
        find_database(tmp_path)
    assert "word" not in str(refused.value).replace("PASSWORD", "")
