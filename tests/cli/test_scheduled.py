"""Scheduled sweeps with real servers and a real worker, in a folder whose name has a space and letters beyond ASCII.

Each is watched from its time to its page, its hook and its state in Prefect; and stopped in the middle.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from knockout.history.table import read
from knockout.ledger.workspace import open_workspace
from knockout.services.processes import free_port, marked

PATIENT = 400.0
KEEP = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10)); raise SystemExit(7)"
"""A hook that keeps what it reads, and fails."""
ASK = """if True:
    import os, sys
    os.environ["PREFECT_API_URL"] = sys.argv[1] + "/api"
    from prefect.client.orchestration import get_client
    from prefect.states import Running
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name(sys.argv[2])
        state = Running() if sys.argv[4:] else None
        client.create_flow_run_from_deployment(deployment.id, name=sys.argv[3], state=state)"""
"""Asks for a flow run of a deployment, now; with a word more for one that is said to run, and no process makes."""


@pytest.fixture
def served(home, project, tmp_path) -> Iterator:
    """A workspace with servers, a worker, and a project that declares two schedules."""
    home.folder = tmp_path / "Ein Ordner – ö" / "werk"
    home.project = tmp_path / "Ein Ordner – ö" / "projekt"
    shutil.copytree(project, home.project)
    study = (home.project / "ablations" / "small.yaml").read_text()
    endless = study.replace("study: small", "study: endless").replace("tokens: 6400", "tokens: 64000000")
    (home.project / "ablations" / "endless.yaml").write_text(endless)
    hook = {"kind": "command", "run": [sys.executable, "-c", KEEP, str(home.project / "heard ü.txt")]}
    declare(
        home,
        {"schedule": "minutely", "cron": "* * * * *", "studies": ["ablations/small.yaml", "gone"], "on_change": hook},
        {"schedule": "yearly", "cron": "0 3 1 1 *", "studies": ["endless", "small"]},
    )
    home.ports = ("--prefect-port", str(free_port()), "--mlflow-port", str(free_port()))
    code, said = home.knockout("up", "--slots", "2", *home.ports)
    try:
        assert code == 0, said
        yield home
    finally:
        gone, down = home.knockout("down")
    assert (gone, down.splitlines()[-1:]) == (0, ["stopped prefect, mlflow, worker"]), down
    assert not home.alive()


def declare(home, *schedules: dict) -> None:
    """Write the project's schedules; JSON is YAML."""
    file = home.project / "flows" / "schedules.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"schedules": [{"timezone": "Europe/Berlin", **one} for one in schedules]}))


def listed(home) -> dict[str, dict]:
    code, said = home.knockout("schedule", "list", "--json")
    assert code == 0, said
    return {one["schedule"]: one for one in json.loads(said[said.index("[") :])} if "[" in said else {}


def asked(home, query: str) -> list[tuple]:
    """What Prefect's database answers."""
    with closing(sqlite3.connect(f"file:{home.folder / 'prefect' / 'prefect.db'}?mode=ro", uri=True)) as database:
        return list(database.execute(query))


def sweeps(home, schedule: str) -> list[tuple[str, str, str]]:
    """Name, state and message of a schedule's flow runs that are not only planned, in the order of their times."""
    return asked(
        home,
        "SELECT flow_run.name, flow_run.state_name, coalesce(flow_run_state.message, '') FROM flow_run "
        "JOIN flow_run_state ON flow_run.state_id = flow_run_state.id "
        "JOIN deployment ON flow_run.deployment_id = deployment.id "
        f"WHERE deployment.name = 'schedule {schedule}' AND flow_run.state_type != 'SCHEDULED' "
        "ORDER BY flow_run.expected_start_time",
    )


def test_sweeps_are_made_at_their_time_told_stopped_and_taken_out(served, until):
    until(lambda: any(state == "Failed" for _, state, _ in sweeps(served, "minutely")), seconds=PATIENT)
    assert served.knockout("schedule", "pause", "minutely")[0] == 0
    check_sweep(served)

    address = next(one["url"] for one in json.loads(served.knockout("status", "--json")[1])["services"])
    ask = [sys.executable, "-c", ASK, address, "nightly/schedule yearly"]
    subprocess.run([*ask, "one"], check=True, capture_output=True)
    until(lambda: [run for run in served.runs() if run.state == "running"], seconds=PATIENT)
    code, said = served.knockout("stop", "yearly")
    assert (code, said.splitlines()[-1]) == (0, "yearly: cancelled: stopped by `knockout stop`"), said
    until(lambda: sweeps(served, "yearly") == [("one", "Cancelled", "stopped by `knockout stop`")])
    until(lambda: not [run for run in served.runs() if run.state == "running"])
    assert [one.state for one in served.submissions() if one.study == "endless"] == ["cancelled"]
    assert served.knockout("stop", "yearly") == (0, "nothing of 'yearly' is running\n")
    assert {name: (one["last"], one["next"] is None) for name, one in listed(served).items()} == {
        "minutely": ("failed", True), "yearly": ("cancelled", False),
    }  # fmt: skip

    subprocess.run([*ask, "lost", "running"], check=True, capture_output=True)
    for process in marked(f"KNOCKOUT_SERVICE=worker:{served.folder.resolve()}"):
        os.kill(process.pid, signal.SIGKILL)  # as when the machine goes down
    declare(served, {"schedule": "weekly", "cron": "0 3 * * sun", "studies": ["small"]})
    elsewhere, served.project = served.project, served.folder.parent
    assert listed(served).keys() == {"weekly"}  # the file that `up` saw, from whatever folder
    served.project = elsewhere
    assert served.knockout("up", *served.ports)[0] == 0
    assert asked(served, "SELECT name FROM deployment WHERE name LIKE 'schedule %'") == [("schedule weekly",)]
    assert asked(served, "SELECT state_name FROM flow_run WHERE name = 'lost'") == [("Crashed",)]


def check_sweep(home) -> None:
    """One sweep was made, at its time; page, history, hook, schedule and Prefect say the same of it."""
    (heard,) = (home.project / "heard ü.txt").read_text().splitlines()
    told = json.loads(heard)
    page = Path(told["page"])
    assert [line.partition(":")[0] for line in told["missed"]] == ["gone"]
    text = page.read_text()
    assert f"- {told['missed'][0]}" in text
    assert "- nobody was told: on_change: " in text  # the hook failed, and is no reason for the state
    rows = [row for row in read(open_workspace(home.folder)) if row.kind == "claim"]
    assert [(row.study, row.name, row.first_seed) for row in rows] == [("small", "one", told["first_seed"])]
    reason = listed(home)["minutely"]["reason"]
    assert reason.startswith("without verdicts: 1; nobody was told: on_change: ")
    assert reason.endswith(f"ended with exit code 7: {page}")
    assert [message for _, state, message in sweeps(home, "minutely") if state == "Failed"] == [reason]
    others = {state for _, state, _ in sweeps(home, "minutely") if state != "Failed"}
    assert others <= {"Cancelled"}  # those whose time came while it ran
