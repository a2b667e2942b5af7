"""Studies on a work pool: real servers, a real worker, repeated flow runs, and processes that are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from agreeing import records_agree

from knockout.services.processes import free_port, marked
from knockout.training.result import read_result

ENDLESS = ("--set", "tokens=64000000")
REPEAT = """if True:
    import os, sys
    os.environ["PREFECT_API_URL"] = sys.argv[1] + "/api"
    from prefect.client.orchestration import get_client
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs():
            if run.deployment_id is None or "submission" not in run.parameters:  # none: it was walked here
                continue
            client.create_flow_run_from_deployment(run.deployment_id, name=f"{run.name} again", parameters=run.parameters)"""
"""Asks for every flow run of a submission once more, as a retry would."""


@pytest.fixture(scope="module")
def pool(shared_home) -> Iterator:
    """A workspace with Prefect, MLflow and a worker of two slots, and a schedule that was there before any server."""
    code, said = shared_home.knockout(
        "schedule", "add", "weekly", "--cron", "0 3 * * sun", "--timezone", "Europe/Berlin", "--studies", "small"
    )
    assert code == 0, said
    assert "weekly: small at 0 3 * * sun Europe/Berlin, due next" in said
    shared_home.ports = ("--prefect-port", str(free_port()), "--mlflow-port", str(free_port()))
    code, said = shared_home.knockout("up", "--slots", "2", *shared_home.ports)
    try:
        assert code == 0, said
        assert "worker   pool knockout, 2 runs at a time" in said
        yield shared_home
    finally:
        gone, down = shared_home.knockout("down")
    assert (gone, down.splitlines()[-1:]) == (0, ["stopped prefect, mlflow, worker"]), down
    assert shared_home.alive() == {}


def status(pool, *of: str) -> dict:
    code, said = pool.knockout("status", *of, "--json")
    assert code == 0, said
    return json.loads(said[said.index("{") :])


def prefect(pool) -> str:
    return next(service["url"] for service in status(pool)["services"] if service["name"] == "prefect")


def flow_runs(pool) -> dict[str, tuple[str, str | None]]:
    """State and message of each flow run by name; of equal names the last one's."""
    query = (
        "SELECT flow_run.name, flow_run.state_name, flow_run_state.message FROM flow_run "
        "LEFT JOIN flow_run_state ON flow_run.state_id = flow_run_state.id ORDER BY flow_run.created"
    )
    with closing(sqlite3.connect(f"file:{pool.folder / 'prefect' / 'prefect.db'}?mode=ro", uri=True)) as database:
        return {name: (state, message) for name, state, message in database.execute(query)}


def logged(pool) -> list[str]:
    """The lines on the pages of flow runs, in their order."""
    query = "SELECT message FROM log WHERE name = 'prefect.flow_runs.knockout' ORDER BY timestamp"
    with closing(sqlite3.connect(f"file:{pool.folder / 'prefect' / 'prefect.db'}?mode=ro", uri=True)) as database:
        return [line for (line,) in database.execute(query)]


def command_line(pid: int) -> str:
    return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode()


def attempts(pool) -> list[int]:
    with closing(sqlite3.connect(f"file:{pool.folder / 'ledger.db'}?mode=ro", uri=True)) as database:
        return [count for (count,) in database.execute("SELECT attempts FROM runs ORDER BY identity")]


def test_a_submitted_study_comes_to_the_verdicts_of_a_local_one_and_each_run_is_trained_once(pool, home, until):
    code, said = pool.knockout("submit", "small", "--no-mlflow", "--wait")
    assert code == 0, said
    assert "/runs/flow-run/" in said
    assert "works on it" in said
    assert re.search(r"\] \((\d+) of \1\) .* · pico · s0: ", said), said
    local, text = home.run("small")
    assert local == 0, text
    ran = {run.identity: run.metrics["val_loss"] for run in pool.runs() if "tokens_per_second" in run.metrics}
    assert ran == {run.identity: run.metrics["val_loss"] for run in home.runs()}
    assert pool.facts("small")["verdicts"][0]["reason"] == home.facts("small")["verdicts"][0]["reason"]

    until(lambda: any(line.startswith("report ") for line in logged(pool)))
    corpus, todo, *verdicts, report = logged(pool)
    assert (corpus, todo) == ("corpus tiny is ready", f"{len(ran)} runs to train of {len(ran)}")
    assert [line.split()[:2] for line in verdicts] == [["one", "pico"]]
    assert report.startswith("report ")
    assert Path(report.split(maxsplit=1)[1]).is_file()

    lose_every_server(pool, until)
    before = attempts(pool)
    subprocess.run([sys.executable, "-c", REPEAT, prefect(pool)], check=True, capture_output=True)
    until(lambda: all(state != "Scheduled" for name, (state, _) in flow_runs(pool).items() if name.endswith(" again")))
    until(lambda: {state for name, (state, _) in flow_runs(pool).items() if name.endswith(" again")} == {"Completed"})
    assert attempts(pool) == before
    assert all(state in ("Completed", "Scheduled") for state, _ in flow_runs(pool).values())


def lose_every_server(pool, until) -> None:
    """Servers and worker die with all their processes in the middle of a study; it ends, and `up` brings them again."""
    before, process = pool.steps(), pool.start("run", "other", "--set", "tokens=64000")
    until(lambda: pool.steps() > before or process.poll() is not None)
    for name in ("worker", "mlflow", "prefect"):
        found = marked(f"KNOCKOUT_SERVICE={name}:{pool.folder.resolve()}")
        assert found, f"{name} was to run"
        for one in found:
            os.kill(one.pid, signal.SIGKILL)  # as when the machine goes down
    code, said = pool.finish(process)
    assert code == 0, said
    assert "Going on without Prefect." in said
    assert "Traceback" not in said
    until(lambda: not any(service["running"] for service in status(pool)["services"]))
    code, said = pool.knockout("status")
    assert code == 0, said
    assert said.count("not running") == 3, said
    code, said = pool.knockout("up", "--slots", "2", *pool.ports)
    assert code == 0, said
    assert all(service["healthy"] for service in status(pool)["services"])
    (queue, _) = status(pool)["queues"]
    assert (queue["queue"], queue["workers"] > 0, queue["next"] is not None) == ("studies", True, True)
    assert flow_runs(pool)[pool.submissions()[-1].submission] == ("Completed", None)
    records_agree(pool)


def test_a_run_whose_worker_was_killed_is_taken_again_and_a_stop_reaches_every_machine(pool, until):
    code, said = pool.knockout("submit", "other", "--no-mlflow", *ENDLESS)
    assert code == 0, said
    name = said.split()[1]
    until(lambda: [run["state"] for run in status(pool, name)["of"]] == ["running", "running"])
    first = next(run for run in pool.runs() if run.state == "running")
    assert first.owner is not None
    assert "/flows/warm.py" in command_line(first.owner.pid)  # forked, and not an interpreter of its own
    until(lambda: list(pool.folder.glob(f"runs/{first.identity}/checkpoints/*.pt")))
    os.kill(first.owner.pid, signal.SIGKILL)
    until(lambda: any(run.attempts == 2 and run.state == "running" for run in pool.runs() if run.identity == first.identity))

    code, said = pool.knockout("stop", "other")
    assert (code, said.splitlines()[-1]) == (0, f"other {name}: cancelled: stopped by `knockout stop`"), said
    stopped = [run for run in pool.runs() if run.identity in {run["identity"] for run in status(pool, name)["of"]}]
    assert {(run.state, run.reason) for run in stopped} == {("cancelled", "stopped by `knockout stop`")}
    assert all(read_result(pool.folder / "runs" / run.identity) is None for run in stopped)
    until(lambda: flow_runs(pool)[name][0] == "Cancelled")

    elsewhere = ("submit", "other", "--no-mlflow", "--pool", "nobody")
    code, said = pool.knockout(*elsewhere)
    assert (code, said) == (2, "no work pool 'nobody' (there are: knockout); `knockout worker --pool 'nobody'` makes it\n")
    made = [sys.executable, "-m", "prefect", "work-pool", "create", "nobody", "--type", "process"]
    subprocess.run(made, check=True, capture_output=True, env={**os.environ, "PREFECT_API_URL": f"{prefect(pool)}/api"})
    code, said = pool.knockout(*elsewhere)
    assert "no worker of pool 'nobody' is online" in said
    waiting = said.split("submitted ")[1].split()[0]
    assert status(pool, waiting)["state"] == "submitted"
    assert status(pool, waiting)["address"] in said
    code, told = pool.knockout("worker", "--pool", "nobody", "--remove")
    assert (code, "pool 'nobody' still has work" in told) == (2, True), told
    assert pool.knockout("stop", waiting) == (0, f"other {waiting}: cancelled before a worker began it\n")
    assert pool.knockout("stop", waiting) == (0, f"nothing of '{waiting}' is running\n")
    assert flow_runs(pool)[waiting][0] == "Cancelled"
    assert pool.knockout("worker", "--pool", "nobody", "--remove") == (0, "nobody: removed, with 6 deployments\n")
    assert {queue["pool"] for queue in status(pool)["queues"]} == {"knockout"}
