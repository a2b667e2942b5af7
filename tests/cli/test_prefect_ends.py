"""What dead processes left in Prefect's database is set right by the ledger, once a server is there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from commands import ENDLESS
from telling import RECONCILE

from knockout.ledger.lost import FORGOTTEN
from knockout.ledger.process import Owner, this_process
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import open_workspace
from knockout.services import borrowed

LEFT_OPEN = """if True:
    import json, os, sys
    os.environ["PREFECT_API_URL"] = sys.argv[1] + "/api"
    from prefect import flow, task
    from prefect.client.orchestration import get_client
    from prefect.states import Running
    @flow(name="study")
    def study(): pass
    @flow(name="training")
    def training(submission, run): pass
    @task
    def run(): pass
    with get_client(sync_client=True) as client:
        asked = {"submission": "died", "run": "b"}
        client.create_flow_run(training, name="training of b", parameters=asked, state=Running())
        for name, tasks in json.loads(sys.argv[2]).items():
            tags = ["workspace " + (sys.argv[3] if name == "forgotten" else "/elsewhere")]
            made = client.create_flow_run(study, name=name, state=Running(), tags=tags)
            for number, title in enumerate(tasks):
                client.create_task_run(run, made.id, dynamic_key=str(number), name=title, state=Running())"""
STATES = """if True:
    import json, os, sys
    os.environ["PREFECT_API_URL"] = sys.argv[1] + "/api"
    from prefect.client.orchestration import get_client
    with get_client(sync_client=True) as client:
        told = {one.name: (one.state.name, one.state.message) for one in client.read_flow_runs()}
        told |= {one.name: (one.state.name, one.state.message) for one in client.read_task_runs()}
    print(json.dumps(told))"""

DOCTOR = """if True:
    import contextlib, sys
    sys.argv = ["knockout", "doctor"]
    from knockout.cli import main
    with contextlib.suppress(SystemExit):
        main()"""


def python(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def ask(identity: str, *, seed: int) -> dict:
    return {
        "identity": identity, "meaning": {"seed": seed}, "planned_steps": 10, "flops": 1.0, "variant": "baseline",
        "size": "pico", "seed": seed, "role": "judged",
    }  # fmt: skip


def end(ledger: Ledger, run: str, *, state: str, reason: str | None) -> None:
    owner = this_process()
    assert ledger.claim(run, owner=owner)
    assert ledger.finish(run, owner=owner, state=state, reason=reason, step=1, seconds=1.0, metrics={})


def test_flow_runs_and_their_tasks_get_the_state_that_the_ledger_has(tmp_path, monkeypatch: pytest.MonkeyPatch):
    workspace = open_workspace(tmp_path / "home")
    ledger, gone = Ledger(workspace), Owner(this_process().host, 2**22 + 1, "never")
    for name in ("died", "finished", "cancelled", "timed-out", "failed", "working"):
        owner = gone if name == "died" else this_process()
        ledger.submit(name, study="small", plan="", owner=owner, runs=[ask(run, seed=n) for n, run in enumerate("abcde")])
    with monkeypatch.context() as earlier:
        earlier.setattr("knockout.ledger.store.time.time", lambda: 1e9)
        end(ledger, "d", state="cancelled", reason="stopped by the user")
    ledger.claim("b", owner=gone)
    open_ = {name: [] for name in ("finished", "cancelled", "timed-out", "failed", "working", "elsewhere")}
    open_["forgotten"] = ["tune baseline · pico"]
    open_["died"] = [*(f"baseline · pico · s{seed}" for seed in range(5)), "corpus"]
    with borrowed(workspace.folder, name="prefect") as url:
        python(LEFT_OPEN, url, json.dumps(open_), str(workspace.folder))
        end(ledger, "a", state="done", reason=None)
        for name, state in {
            "finished": "done",
            "cancelled": "cancelled",
            "timed-out": "timed-out",
            "failed": "failed",
        }.items():
            ledger.conclude(name, state=state, reason=None if state == "done" else f"{name}, as the ledger says", facts=None)
        ledger.reconcile()
        end(ledger, "c", state="timed-out", reason="longer than 1 seconds, in a later submission")
        end(ledger, "e", state="done", reason=None)
        monkeypatch.setenv("PREFECT_API_URL", f"{url}/api")
        monkeypatch.setenv("KNOCKOUT_HOME", str(workspace.folder))
        assert "died: Prefect was told how it ended" in python(DOCTOR).splitlines()
        assert python(RECONCILE, str(workspace.folder), url) == "cancelled failed finished forgotten timed-out"
        told = json.loads(python(STATES, url))
        assert python(RECONCILE, str(workspace.folder), url) == ""
        assert json.loads(python(STATES, url)) == told
    ledger.close()
    assert told == {
        "died": ["Crashed", f"{gone} died"],
        "baseline · pico · s0": ["Completed", None],
        "baseline · pico · s1": ["Crashed", f"{gone} died while it held the run"],
        "baseline · pico · s2": ["Crashed", f"{gone} died"],
        "baseline · pico · s3": ["Crashed", f"{gone} died"],
        "baseline · pico · s4": ["Crashed", f"{gone} died"],
        "training of b": ["Crashed", f"{gone} died while it held the run"],
        "corpus": ["Crashed", f"{gone} died"],
        "finished": ["Completed", None],
        "cancelled": ["Cancelled", "cancelled, as the ledger says"],
        "timed-out": ["TimedOut", "timed-out, as the ledger says"],
        "failed": ["Failed", "failed, as the ledger says"],
        "working": ["Running", None],
        "elsewhere": ["Running", None],
        "forgotten": ["Failed", FORGOTTEN],
        "tune baseline · pico": ["Failed", FORGOTTEN],
    }


def test_signals_and_limits_have_their_own_state_in_prefect(home, until):
    process = home.start("run", "small", "--no-mlflow", *ENDLESS)
    until(lambda: home.newest_step() or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    code, said = home.finish(process)
    assert (code, "Traceback" in said) == (130, False), said
    code, said = home.knockout("run", "small", "--no-mlflow", *ENDLESS, "--study-seconds", "25", "--slots", "1")
    assert (code, "Traceback" in said) == (1, False), said
    assert [ended for _, *ended in home.flow_runs()] == [
        ["Cancelled", "stopped by the user"],
        ["TimedOut", "the study's limit of 25 s"],
    ], said
    assert [(one.state, one.reason) for one in home.submissions()] == [
        ("cancelled", "stopped by the user"),
        ("timed-out", "the study's limit of 25 s"),
    ]
    assert {run.reason for run in home.runs()} <= {"stopped by the user", "the study's limit of 25 s", None}


class Counting(BaseHTTPRequestHandler):
    """A server with nothing open, that notes what is queried."""

    asked: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"id": "6f1f0b52-3f86-4a38-9d6a-0a4ad6bdf0a1"}' if self.path == "/api/flows/" else b"[]")

    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()

    def log_message(self, format: str, *_: object) -> None:
        """Says nothing."""


def test_where_nothing_is_open_or_owed_three_requests_are_made(tmp_path):
    workspace, Counting.asked = open_workspace(tmp_path / "home"), []
    Ledger(workspace).close()
    with HTTPServer(("127.0.0.1", 0), Counting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert python(RECONCILE, str(workspace.folder), f"http://127.0.0.1:{server.server_port}") == ""
        server.shutdown()
    assert Counting.asked == ["/api/flow_runs/filter", "/api/task_runs/filter", "/api/flows/"]
