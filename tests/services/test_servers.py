"""Real servers: up, status, down, and borrowed ones that end with their borrower."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from knockout.errors import InputError, ServiceError
from knockout.services import Service, all_of, begin, begin_up, borrowed, down, status, up, up_worker
from knockout.services.catalog import MLFLOW, PREFECT, SERVERS, Server, worker
from knockout.services.locks import locked, store_lock
from knockout.services.processes import Process, describe, free_port, identify, is_alive, marked
from knockout.services.servers import chosen_ports, mark

BORROWER = """
import sys, time
from pathlib import Path
from knockout.services import begin
borrowing = begin(Path(sys.argv[1]), name="prefect")
print(borrowing.wait(), flush=True)
time.sleep(600)
"""

FAKE_SERVER = """
import http.server, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *words): pass
socketserver.TCPServer.allow_reuse_address = True
socketserver.TCPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def get(url: str) -> int:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as answer:
        return answer.status


def two_ports() -> dict[str, int]:
    ports: set[int] = set()
    while len(ports) < 2:
        ports.add(free_port())
    return dict(zip(SERVERS, ports, strict=True))


def everything_of(workspace: Path) -> list[Process]:
    return [process for server in SERVERS.values() for process in marked(mark(workspace, server=server))]


@pytest.fixture
def fake_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Both services as tiny programs that answer at once, under the real guard."""
    command = lambda workspace, port: [sys.executable, "-S", "-c", FAKE_SERVER, str(port)]  # noqa: E731
    for server in (PREFECT, MLFLOW):
        monkeypatch.setitem(SERVERS, server.name, replace(server, command=command))  # type: ignore[arg-type]
    yield
    down(tmp_path)


def set_command(monkeypatch: pytest.MonkeyPatch, server: Server, script: str) -> None:
    command = lambda workspace, port: ["sh", "-c", script]  # noqa: E731
    monkeypatch.setitem(SERVERS, server.name, replace(server, command=command))  # type: ignore[arg-type]


def test_the_real_servers_come_up_stay_and_go_down_without_a_trace(tmp_path: Path) -> None:
    workspace = tmp_path / "a work space"
    ports = two_ports()
    try:
        first = up(workspace, ports=ports)
        assert [(service.name, service.port) for service in first] == list(ports.items())
        assert up(workspace) == first  # what runs stays

        now = status(workspace)
        assert not now.pop().running  # the worker is started by itself
        assert all(service.running and service.healthy for service in now)
        assert [service.pid for service in now] == [service.pid for service in first]
        assert all(0 < time.time() - (service.since or 0) < 300 for service in now)
        prefect, mlflow = now
        assert get(f"{prefect.url}/api/health") == 200
        assert get(f"{prefect.url}/") == 200
        assert get(f"{mlflow.url}/") == 200
        with borrowed(workspace, name="prefect") as url:
            assert url == prefect.url

        os.kill(first[1].pid, signal.SIGKILL)  # the guard's orphan is MLflow's own child, which outlives it
        deadline = time.monotonic() + 10
        while status(workspace)[1].running and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [service.running for service in status(workspace)] == [True, False, False]
    finally:
        down(workspace)
    assert everything_of(workspace) == []
    assert not any(service.running for service in status(workspace))
    assert not list((workspace / "services").glob("*.json"))
    assert "locked" not in "".join(log.read_text() for log in (workspace / "services").glob("*.log"))
    assert down(workspace) == []


def test_a_borrowed_server_ends_with_a_borrower_that_is_killed_with_9(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", BORROWER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as borrower:
        assert borrower.stdout is not None
        url = borrower.stdout.readline().strip()
        assert get(f"{url}/api/health") == 200
        assert not any(service.running for service in status(tmp_path))  # it is nobody else's
        below = [process for pid in children(borrower.pid) for process in [identify(pid)] if process is not None]
        assert len(below) >= 2
        borrower.kill()
    deadline = time.monotonic() + 15
    while any(is_alive(process) for process in below) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [process for process in below if is_alive(process)] == []


def children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    direct = [child for child, parent in pairs if parent == pid]
    return direct + [below for child in direct for below in children(child)]


@pytest.mark.usefixtures("fake_servers")
def test_two_ups_at_once_start_one_server_each(tmp_path: Path) -> None:
    ports, found = two_ports(), []
    threads = [threading.Thread(target=lambda: found.append(up(tmp_path, ports=ports))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1] == found[2]
    assert len(everything_of(tmp_path)) == 4  # two guards, two servers


@pytest.mark.usefixtures("fake_servers")
def test_a_borrowed_server_is_stopped_at_the_end_of_the_block(tmp_path: Path) -> None:
    with borrowed(tmp_path, name="mlflow") as url:
        assert get(f"{url}/health") == 200
    with pytest.raises(OSError, match="refused"):
        get(f"{url}/health")
    assert not list((tmp_path / "services").glob("*.log"))


def test_a_start_that_waits_for_another_can_be_called_off(tmp_path: Path) -> None:
    with locked(store_lock(tmp_path, name="prefect"), timeout_seconds=1):
        borrowing = begin(tmp_path, name="prefect")
        borrowing.stop()
        borrowing.stop()
        with pytest.raises(ServiceError, match="prefect was stopped before it was ready"):
            borrowing.wait()
        with pytest.raises(ServiceError, match=r"store\.lock: another process has held this lock"):
            locked(store_lock(tmp_path, name="prefect"), timeout_seconds=0.1).__enter__()


@pytest.mark.usefixtures("fake_servers")
def test_a_stranger_with_a_recorded_process_id_is_neither_believed_nor_signalled(tmp_path: Path) -> None:
    up(tmp_path, ports=two_ports())
    down(tmp_path)
    stranger = identify(os.getpid())
    assert stranger is not None
    record = {"port": free_port(), "since": 0.0, "guard": {**stranger.as_dict(), "start": "1"}}
    (tmp_path / "services" / "prefect.json").write_text(json.dumps(record))

    assert not status(tmp_path)[0].running
    assert down(tmp_path) == []  # and this process is still here to say so


@pytest.mark.usefixtures("fake_servers")
def test_a_taken_port_names_itself_and_its_holder(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ServiceError, match=rf"port {port} for prefect is taken by process {os.getpid()} \(.*py"):
            up(tmp_path, ports={"prefect": port, "mlflow": free_port()})
    assert not any(service.running for service in status(tmp_path))


@pytest.mark.usefixtures("fake_servers")
def test_what_runs_is_not_moved_to_another_port(tmp_path: Path) -> None:
    ports = two_ports()
    first = up(tmp_path, ports=ports)
    assert up(tmp_path) == up(tmp_path, ports=ports) == first
    says = f"mlflow runs already on {ports['mlflow']}: `knockout down` first for another port"
    with pytest.raises(ServiceError, match=says):
        up(tmp_path, ports={"mlflow": free_port()})


def test_a_command_line_of_several_lines_is_told_on_one() -> None:
    code = "import time\n\nprint(flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the kernel shows a command line once the program runs
        told = describe(process.pid)
        process.kill()
    assert told == f"process {process.pid} ({sys.executable} -S -c import time print(flush=True) time.sleep(60))"


def test_a_server_that_dies_while_starting_shows_the_end_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_command(monkeypatch, PREFECT, "echo something is missing; exit 3")
    set_command(monkeypatch, MLFLOW, "exit 1")
    with pytest.raises(ServiceError) as told:
        up(tmp_path, ports=two_ports())
    assert "prefect ended while it was starting" in str(told.value)
    assert "\n  something is missing" in str(told.value)
    assert "mlflow ended while it was starting" in str(told.value)
    assert not any(service.running for service in status(tmp_path))

    with pytest.raises(ServiceError, match="something is missing"), borrowed(tmp_path, name="prefect"):
        raise AssertionError("there is no server")


def test_an_unknown_service_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"'prefct' is not a service \(prefect, mlflow\)"):
        up(tmp_path, ports={"prefct": 4200})


@pytest.mark.parametrize(
    ("ports", "message"),
    [
        ({"prefect": -1}, "port -1 for prefect is not between 1 and 65535"),
        ({"mlflow": 65536}, "port 65536 for mlflow is not between 1 and 65535"),
        ({"prefect": 5000}, "prefect and mlflow cannot both have port 5000; give each a port of its own"),
    ],
)
def test_impossible_ports_are_wrong_input(tmp_path: Path, ports: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        up(tmp_path, ports=ports)


def test_a_port_for_both_servers_is_told_in_a_sentence_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "knockout", "up", "--prefect-port", "24731", "--mlflow-port", "24731"]
    ended = subprocess.run([*command, "--workspace", str(tmp_path)], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "prefect and mlflow cannot both have port 24731; give each a port of its own\n"


@pytest.mark.usefixtures("fake_servers")
def test_without_ports_a_workspace_keeps_its_own(tmp_path: Path) -> None:
    ports, said = two_ports(), list[str]()
    first = up(tmp_path, ports=ports)
    os.kill(first[0].pid, signal.SIGKILL)
    coming = begin_up(tmp_path, say=said.append)
    assert [service.port for service in all_of(coming.values())] == [*ports.values()]
    assert said == ["starting prefect …"]  # and MLflow's runs already
    down(tmp_path)
    assert [service.port for service in up(tmp_path)] == [*ports.values()]
    down(tmp_path)
    other = free_port()
    assert [service.port for service in up(tmp_path, ports={"prefect": other})] == [other, ports["mlflow"]]


@pytest.mark.usefixtures("fake_servers")
def test_a_copy_of_a_workspace_takes_no_port_of_the_other(tmp_path: Path) -> None:
    ports = two_ports()
    up(tmp_path / "first", ports=ports)
    down(tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    assert chosen_ports(tmp_path / "first", ports={}) == ports
    assert chosen_ports(tmp_path / "second", ports={}) == {"prefect": 4200, "mlflow": 5000}


@pytest.fixture
def fake_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A worker that is a tiny program, under the real guard."""

    def tiny(**given: Any) -> Server:
        command = lambda workspace, port: [sys.executable, "-S", "-c", FAKE_SERVER, str(port)]  # noqa: E731
        return replace(worker(**given), command=command)

    monkeypatch.setattr("knockout.services.catalog.worker", tiny)
    yield
    down(tmp_path)


@pytest.mark.usefixtures("fake_worker")
def test_a_worker_for_another_address_of_prefect_is_ended_and_started_anew(tmp_path: Path) -> None:
    said: list[str] = []

    def work(address: str) -> Service:
        return up_worker(tmp_path, pool="knockout", slots=1, prefect=address, say=said.append)

    first = work("http://127.0.0.1:4200")
    assert work("http://127.0.0.1:4200") == first
    second = work("http://127.0.0.1:4210")
    assert (is_alive(first.guard), is_alive(second.guard)) == (False, True)
    told = "ending the worker that works for Prefect at http://127.0.0.1:4200, not http://127.0.0.1:4210"
    assert said == ["starting worker …", told, "starting worker …"]


def test_a_slow_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knockout.services.waiting.TELL_AFTER_SECONDS", 0.2)
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{FAKE_SERVER}"
    command = lambda workspace, port: [sys.executable, "-S", "-c", deaf, str(port)]  # noqa: E731
    for server in (PREFECT, MLFLOW):
        monkeypatch.setitem(SERVERS, server.name, replace(server, command=command, grace_seconds=1.0))  # type: ignore[arg-type]
    said: list[str] = []
    up(tmp_path, ports=two_ports())
    assert down(tmp_path, say=said.append) == [*SERVERS]
    logs = {name: tmp_path / "services" / f"{name}.log" for name in SERVERS}
    told = {f"waiting for {name} to end what it has in work, 1 s at most; its log is {log}" for name, log in logs.items()}
    assert set(said) == told


def test_a_service_of_another_host_is_left_to_that_host(tmp_path: Path) -> None:
    (tmp_path / "services").mkdir()
    guard = {"host": "elsewhere", "boot": "x", "pid": 1, "start": "1"}
    (tmp_path / "services" / "mlflow.json").write_text(json.dumps({"port": 5000, "since": 0.0, "guard": guard}))
    with pytest.raises(ServiceError, match="was started on 'elsewhere'"):
        down(tmp_path)


def test_a_server_that_is_slow_is_waited_for_and_the_wait_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = lambda workspace, port: [sys.executable, "-S", "-c", f"import time; time.sleep(1)\n{FAKE_SERVER}", str(port)]  # noqa: E731
    for server in (PREFECT, MLFLOW):
        monkeypatch.setitem(SERVERS, server.name, replace(server, command=slow))  # type: ignore[arg-type]
    monkeypatch.setattr("knockout.services.launch.TELL_SECONDS", 0.3)
    said: list[str] = []
    ports = two_ports()
    try:
        coming = begin_up(tmp_path, ports=ports, say=said.append)
        assert [service.port for service in all_of(coming.values())] == [*ports.values()]
    finally:
        down(tmp_path)
    for name, port in ports.items():
        log = tmp_path / "services" / f"{name}.log"
        told = rf"waiting for {name} to answer on port {port} since \d+ s; its log is {re.escape(str(log))}"
        assert any(re.fullmatch(told, line) for line in said), said
