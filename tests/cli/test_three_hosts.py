"""Three hosts that share a database, Prefect's server and an object store, and no disk: one is cut off, another dies."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from knockout.ledger.leases import VARIABLE as LEASE
from knockout.ledger.store import Ledger, LedgerRun
from knockout.ledger.workspace import open_workspace
from knockout.services import catalog
from knockout.services.database import VARIABLE as DATABASE
from knockout.services.database import Database
from knockout.services.objects import VARIABLE as STORE
from knockout.services.processes import free_port
from knockout.tracking.naming import IDENTITY

LEASE_SECONDS = 12
SECONDS = 600.0
"""On a machine with much else to do."""
NUM_SEEDS = 12
POOL = "hosts"
NAMES = ("anna", "bela", "cora")
STUDY = f"""study: spread
question: Does a tiny stack learn a chain without its residual path, whatever host trains it?
corpus: tiny
size: pico
baseline:
  {{width: 16, heads: 2, depth: 2, context: 16, vocabulary: 32, batch: 4, tokens: 6400, warmup_steps: 10, evaluations: 4}}
variants:
  no-residual: {{residual: {{kind: none}}}}
seeds: {NUM_SEEDS}
controls: {{aa: false}}
competence: {{floor: none}}
claims:
  - id: one
    says: It learns less without
    expect: {{variant: no-residual, is: worse, than: baseline, by: 0.01}}
"""
APART = """set -e
name=$1; shift
while [ "$1" != -- ]; do mount -t tmpfs none "$1"; shift; done
shift
echo $name > /proc/sys/kernel/hostname
exec "$@"
"""
"""A host's name, and the folders of others, which it does not see."""


@dataclass
class Line:
    """The one way from a host to what it shares with others: a relay for each service."""

    address: str
    ports: dict[int, int] = field(default_factory=dict)
    """A service's port -> the relay's."""
    is_cut: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def open(self, *services: int) -> None:
        for service in services:
            listening = socket.create_server((self.address, 0))
            self.ports[service] = listening.getsockname()[1]
            thread = threading.Thread(target=self._relay, args=(listening, service), daemon=True)
            thread.start()
            self.threads.append(thread)

    def close(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()

    def through(self, address: str) -> str:
        """An address on this machine, as the host reaches it."""
        for service, relay in self.ports.items():
            address = address.replace(f"127.0.0.1:{service}", f"{self.address}:{relay}")
        return address

    def _relay(self, listening: socket.socket, service: int) -> None:
        ways: dict[socket.socket, socket.socket] = {}
        with selectors.DefaultSelector() as ready, listening:
            ready.register(listening, selectors.EVENT_READ)
            while not self.over.is_set():
                for key, _ in ready.select(timeout=0.1):
                    while self.is_cut.is_set() and not self.over.is_set():
                        time.sleep(0.05)  # nothing moves, and nobody is told
                    one = key.fileobj
                    assert isinstance(one, socket.socket)
                    if one is listening:
                        near, far = listening.accept()[0], socket.create_connection(("127.0.0.1", service))
                        ways |= {near: far, far: near}
                        for end in (near, far):
                            ready.register(end, selectors.EVENT_READ)
                    elif one in ways and not _passed_on(one, ways[one]):
                        for end in (ways[one], one):
                            ready.unregister(end)
                            del ways[end]
                            end.close()
        for end in ways:
            end.close()


def _passed_on(one: socket.socket, other: socket.socket) -> bool:
    try:
        data = one.recv(1 << 16)
        other.sendall(data)
    except OSError:
        return False
    return bool(data)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass
class Host:
    """A worker with a home, a workspace and, where that is allowed, a network, a name and a view of the disk of its own."""

    name: str
    folder: Path
    line: Line
    network: str | None
    cable: str = ""
    process: subprocess.Popen[bytes] | None = None

    def work(self, *, environment: dict[str, str], hidden: list[Path]) -> None:
        own = {"HOME": str(self.folder), "KNOCKOUT_HOME": str(self.folder / "workspace"), "TMPDIR": str(self.folder)}
        command = [sys.executable, "-c", "from knockout.cli import main; main()", "worker", "--pool", POOL, "--slots", "1"]
        if self.network is not None:
            away = [str(path) for path in hidden]
            apart = ["ip", "netns", "exec", self.network, "unshare", "--uts", "sh", "-c", APART, "sh", self.name]
            command = [*apart, *away, "--", *command]
        with (self.folder / "worker.log").open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={**environment, **own, "OMP_NUM_THREADS": "1"},
                cwd=self.folder,
                start_new_session=True,
            )

    def cut(self) -> None:
        """Out of reach of everything, without a word."""
        if self.network is None:
            self.line.is_cut.set()
        else:
            ip("link", "set", self.cable, "down")

    def mend(self) -> None:
        self.line.is_cut.clear()
        if self.network is not None:
            ip("link", "set", self.cable, "up")

    def kill(self) -> None:
        """Every process of the host at once."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and self._is_of_it(entry):
                with suppress(ProcessLookupError):
                    os.kill(int(entry.name), signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def sealed(self) -> dict[str, Path]:
        """The results that lie on its disk, by the run's identity."""
        return {path.parent.name: path for path in self.folder.glob("workspace/runs/*/result.json")}

    def has(self, pid: int) -> bool:
        """Whether a process is one of the host's."""
        return self._is_of_it(Path("/proc", str(pid)))

    def _is_of_it(self, entry: Path) -> bool:
        try:
            return f"KNOCKOUT_HOME={self.folder / 'workspace'}\0".encode() in (entry / "environ").read_bytes()
        except OSError:
            return False


def make_host(name: str, *, number: int, folder: Path, spaces: ExitStack) -> Host:
    """A host with a network namespace of its own, whose cable leads here; without one where that is not allowed."""
    folder.mkdir(parents=True)
    tag, here = f"ko{os.getpid() % 100_000}{name[0]}", f"10.213.{os.getpid() % 250}.{4 * number + 1}"
    allowed = (
        shutil.which("ip") is not None and not subprocess.run(["ip", "netns", "add", tag], capture_output=True).returncode
    )
    line = Line(here if allowed else "127.0.0.1")
    host = Host(name, folder, line, tag if allowed else None, cable=tag)
    spaces.callback(line.close)
    if allowed:
        spaces.callback(ip, "netns", "del", tag)
        ip("link", "add", tag, "type", "veth", "peer", "name", "out", "netns", tag)
        ip("addr", "add", f"{here}/30", "dev", tag)
        ip("link", "set", tag, "up")
        there = here.rpartition(".")
        ip("-n", tag, "addr", "add", f"{there[0]}.{4 * number + 2}/30", "dev", "out")
        for link in ("out", "lo"):
            ip("-n", tag, "link", "set", link, "up")
    spaces.callback(host.kill)
    return host


@pytest.fixture
def hosts(
    request: pytest.FixtureRequest, home, project, database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until
) -> Iterator[list[Host]]:
    """Three hosts at work for a pool of the user's Prefect server; the user has a workspace of their own too."""
    if not request.config.getoption("--hosts"):
        pytest.skip("takes ten minutes: asked for by --hosts")
    moto = pytest.importorskip("moto.server", reason="moto's server is not installed")
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
    home.project = tmp_path / "project"
    for name, text in {
        "ablations/spread.yaml": STUDY,
        "data/tiny.yaml": (project / "data" / "tiny.yaml").read_text(),
    }.items():
        (home.project / name).parent.mkdir(parents=True)
        (home.project / name).write_text(text)
    with ExitStack() as spaces:
        s3 = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
        s3.start()
        spaces.callback(s3.stop)
        s3_port, prefect_port = s3.get_host_and_port()[1], free_port()
        shared = {
            "AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "open-sesame", "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_port}", STORE: "s3://lab/knockout", LEASE: str(LEASE_SECONDS),
            DATABASE: database.address, "PREFECT_API_URL": f"http://127.0.0.1:{prefect_port}/api",
        }  # fmt: skip
        for name, value in shared.items():
            monkeypatch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="lab")
        _serve_prefect(home.folder, port=prefect_port, spaces=spaces)
        place = tmp_path / "hosts"
        found = [make_host(name, number=number, folder=place / name, spaces=spaces) for number, name in enumerate(NAMES)]
        until(lambda: _answers(f"http://127.0.0.1:{prefect_port}/api/health"))
        for host in found:
            host.line.open(int(database.address.rpartition(":")[2].partition("/")[0]), s3_port, prefect_port)
            reached = {name: host.line.through(value) for name, value in shared.items()}
            hidden = [*(other.folder for other in found if other is not host), home.project, home.folder]
            host.work(environment={**os.environ, **reached, "no_proxy": host.line.address}, hidden=hidden)
        yield found


def _serve_prefect(folder: Path, *, port: int, spaces: ExitStack) -> None:
    server = catalog.PREFECT
    server.folder(folder).mkdir(parents=True)
    server.settle(folder)
    log = spaces.enter_context((folder / "prefect.log").open("wb"))
    process = subprocess.Popen(
        server.command(folder, port),
        env=server.environment(folder, port, False),
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    spaces.callback(process.wait)
    spaces.callback(os.killpg, process.pid, signal.SIGKILL)


def _answers(address: str) -> bool:
    try:
        return httpx.get(address, timeout=2.0, trust_env=False).is_success
    except httpx.HTTPError:
        return False


@pytest.fixture
def ledger(home, hosts: list[Host]) -> Iterator[Ledger]:
    """The ledger of all hosts, as the user sees it."""
    opened = Ledger(open_workspace(home.folder))
    yield opened
    opened.close()


def runs_of(ledger: Ledger) -> dict[str, LedgerRun]:
    (submission,) = ledger.submissions()
    return {run.identity: run for run in ledger.runs({identity for identity, *_ in ledger.asked(submission.submission)})}


def held_by(host: Host, *, ledger: Ledger) -> LedgerRun | None:
    held = [run for run in runs_of(ledger).values() if run.state == "running" and run.owner is not None]
    return next((run for run in held if run.owner is not None and host.has(run.owner.pid)), None)


def begun_on(host: Host, *, ledger: Ledger) -> LedgerRun:
    """A run that a host has begun to train just now; waits for one."""
    before, deadline = held_by(host, ledger=ledger), time.monotonic() + SECONDS
    while (held := held_by(host, ledger=ledger)) is None or (before and held.identity == before.identity):
        assert time.monotonic() < deadline, f"{host.name} trains nothing"
        time.sleep(0.1)
    return held


def test_a_study_over_three_hosts_of_which_one_is_cut_off_and_one_dies_has_the_verdict_of_one_machine(
    home, hosts: list[Host], ledger: Ledger, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until
):
    code, said = home.knockout("submit", "spread", "--pool", POOL)
    assert code == 0, said
    until(lambda: ledger.submissions() and any(run.finished for run in runs_of(ledger).values()), seconds=SECONDS)
    (submission,) = ledger.submissions()
    assert submission.owner is not None
    walking = next(host for host in hosts if host.has(submission.owner.pid))
    first, second = (host for host in hosts if host is not walking)

    late = begun_on(first, ledger=ledger)
    first.cut()
    lost = begun_on(second, ledger=ledger)
    second.kill()
    until(lambda: runs_of(ledger)[late.identity].finished, seconds=SECONDS)
    kept, before = runs_of(ledger)[late.identity], first.sealed().keys()
    first.mend()
    until(lambda: ledger.submissions()[0].state != "running", seconds=SECONDS)

    assert (ledger.submissions()[0].state, ledger.submissions()[0].reason) == ("done", None)
    runs = runs_of(ledger)
    assert (len(runs), {run.state for run in runs.values()}) == (2 * NUM_SEEDS, {"done"})
    assert {name: run.attempts for name, run in runs.items() if run.attempts > 1} == {late.identity: 2, lost.identity: 2}
    assert runs[late.identity] == kept, "what the host that was cut off had to say of it came too late"
    assert first.sealed().keys() - before, "it went on with other runs"
    with database.connection() as connection:
        shown = connection.execute("SELECT value FROM mlflow.tags WHERE key = %s", [IDENTITY])
        assert sorted(value for (value,) in shown) == sorted(runs)

    spread = home.facts("spread")["verdicts"]
    for name in (DATABASE, STORE):
        monkeypatch.delenv(name)
    alone = type(home)(tmp_path / "alone", home.project, home.started)
    code, said = alone.run("spread")
    assert code == 0, said
    assert {run.identity: run.metrics["val_loss"] for run in alone.runs()} == {
        name: run.metrics["val_loss"] for name, run in runs.items()
    }
    assert alone.facts("spread")["verdicts"] == spread
