"""What Prefect missed, or lost with its database, is told to it by the next command that reaches it, once."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from agreeing import query
from telling import RECONCILE

from knockout.errors import ServiceError
from knockout.ledger.flow_runs import owed_flow_runs
from knockout.ledger.process import this_process
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import Workspace, open_workspace
from knockout.services import borrowed
from knockout.services.catalog import settle_prefect
from knockout.upkeep.doctor import diagnose, repair

FLOW_RUNS = """SELECT flow_run.name, flow_run.state_name, flow_run_state.message, flow_run.parameters,
    flow_run.expected_start_time FROM flow_run
    JOIN flow_run_state ON flow_run.state_id = flow_run_state.id ORDER BY flow_run.name"""
ENDS = {
    "cut-off": ("failed", "process 7 on here died while it held the run", "Crashed"),
    "done": ("done", None, "Completed"),
    "late": ("timed-out", "the study's limit of 3 s", "TimedOut"),
    "stopped": ("cancelled", "stopped by the user", "Cancelled"),
}
STATES = [[name, shown, reason] for name, (_, reason, shown) in ENDS.items()]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Submissions that ended while no server could be reached; one that wanted none, and one in work."""
    workspace = open_workspace(tmp_path / "home")
    ledger = Ledger(workspace)
    for name in (*ENDS, "unasked", "working"):
        ledger.submit(name, study="small", plan="", owner=this_process(), runs=[], prefect=name != "unasked")
    for name in (*ENDS, "unasked"):
        state, reason, _ = ENDS.get(name, ("done", None, ""))
        ledger.conclude(name, state=state, reason=reason, facts=None)
    ledger.close()
    return workspace


def reconcile(workspace: Workspace, *, server: str, times: int = 1) -> list[str]:
    """What so many commands at the same moment tell Prefect."""
    command = [sys.executable, "-c", RECONCILE, str(workspace.folder), server]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(times)]
    ended = [(process.communicate(), process.returncode) for process in started]
    assert [code for _, code in ended] == [0] * times, ended
    return [said.strip() for (said, _), _ in ended]


def flow_runs(workspace: Workspace) -> list[tuple[str, str, str | None, str, str]]:
    return query(workspace.folder / "prefect" / "prefect.db", FLOW_RUNS)


def told(workspace: Workspace) -> list[list[str | None]]:
    return [list(row[:3]) for row in flow_runs(workspace)]


def test_what_prefect_missed_is_told_once_and_again_to_a_database_that_took_its_place(workspace: Workspace):
    with borrowed(workspace.folder, name="prefect") as server:
        said = reconcile(workspace, server=server, times=2)
        assert set(ENDS) <= {name for line in said for name in line.split()}
        assert told(workspace) == STATES
        assert reconcile(workspace, server=server) == [""]
    ledger = Ledger(workspace)
    for name, _, _, parameters, expected in flow_runs(workspace):
        one = ledger.submission(name)
        assert one is not None
        assert one.finished is not None
        given = json.loads(parameters)
        assert (given["study"], given["submission"]) == ("small", name)
        assert given["began"][:19].replace("T", " ") == expected[:19]
    ((database,),) = query(workspace.folder / "prefect" / "prefect.db", "SELECT id FROM flow WHERE name = 'study'")
    assert owed_flow_runs(ledger, database=database) == []
    assert {one.submission for one in owed_flow_runs(ledger, database="another")} == set(ENDS)
    ledger.close()

    damage_prefect(workspace)
    with borrowed(workspace.folder, name="prefect") as server:
        assert reconcile(workspace, server=server) == [" ".join(sorted(ENDS))]
        assert told(workspace) == STATES


def damage_prefect(workspace: Workspace) -> None:
    """Overwrite Prefect's database, see that it is told in a line and found, and have it repaired."""
    file = workspace.folder / "prefect" / "prefect.db"
    file.write_text("garbage-garbage-garbage\n" * 100)
    with pytest.raises(ServiceError) as told, borrowed(workspace.folder, name="prefect"):
        pass
    assert str(told.value).splitlines() == [str(told.value)]
    assert f"prefect cannot start: {file} is damaged (" in str(told.value)
    assert "`knockout doctor --repair` moves it to lost+found/, and the next command" in str(told.value)
    assert repaired(workspace) == [("Prefect", None)]
    assert not file.exists()


def repaired(workspace: Workspace) -> list[tuple[str, str | None]]:
    """Repair what is found; the working submission, which no process of this test's works on, would forbid it."""
    ledger = Ledger(workspace)
    ledger.conclude("working", state="done", reason=None, facts=None)
    with ledger.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM flow_runs WHERE submission = 'working'")
    ledger.close()
    return [(one.finding.kind, one.problem) for one in repair(diagnose(workspace), workspace=workspace)]


def cut(file: Path) -> None:
    settled(file)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def overwritten_within(file: Path) -> None:
    settled(file)
    content = bytearray(file.read_bytes())
    content[4096:12_288] = b"\xff" * 8192
    file.write_bytes(content)


def settled(file: Path) -> None:
    """A sound database of some pages."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE flow_run (name TEXT PRIMARY KEY)")
        rows: Iterable[tuple[str]] = [(f"{number:0200}",) for number in range(400)]
        connection.executemany("INSERT INTO flow_run VALUES (?)", rows)
        connection.commit()


@pytest.mark.parametrize(
    ("harm", "says"),
    [(Path.mkdir, "it is a folder, not a file"), (cut, "malformed"), (overwritten_within, "")],
)
def test_a_damaged_database_of_prefects_is_found_and_makes_way(workspace: Workspace, harm, says: str):
    file = workspace.folder / "prefect" / "prefect.db"
    file.parent.mkdir()
    harm(file)
    with pytest.raises(ServiceError, match=r"prefect cannot start: .* is damaged"):
        settle_prefect(workspace.folder)
    (finding,) = diagnose(workspace).findings
    assert (finding.kind, finding.where) == ("Prefect", "prefect/prefect.db")
    assert finding.what.startswith("it is damaged: ")
    assert says in finding.what
    assert [problem for _, problem in repaired(workspace)] == [None]
    assert diagnose(workspace).findings == ()
    assert [path.name for path in (workspace.folder / "lost+found").glob("prefect*")] == ["prefect-prefect.db"]
    settle_prefect(workspace.folder)


@pytest.mark.parametrize("name", ["prefect", "services"])
def test_a_file_where_a_folder_of_prefects_belongs_is_told_in_a_line(workspace: Workspace, name: str):
    (workspace.folder / name).write_text("a file")
    says = f"{name}.*: (File exists|Not a directory)"
    with pytest.raises(ServiceError, match=says) as told, borrowed(workspace.folder, name="prefect"):
        pass
    assert len(str(told.value).splitlines()) == 1
