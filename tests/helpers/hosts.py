"""Hosts that share a database, Prefect's server and an object store, and no disk: each with a network of its own.

Where network namespaces are not allowed, a host is a process with a home and a workspace of its own, behind a relay.
"""

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
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from commands import MAIN, until

from knockout.services import catalog
from knockout.services.processes import free_port

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
    cable: str
    environment: dict[str, str] = field(default_factory=dict)
    hidden: list[Path] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    def work(self, *, pool: str) -> None:
        """Work for a pool, one run at a time; a host that does goes on."""
        if self.process is not None and self.process.poll() is None:
            return
        own = {"HOME": str(self.folder), "KNOCKOUT_HOME": str(self.folder / "workspace"), "TMPDIR": str(self.folder)}
        command = [sys.executable, "-c", MAIN, "worker", "--pool", pool, "--slots", "1"]
        if self.network is not None:
            away = [str(path) for path in self.hidden]
            apart = ["ip", "netns", "exec", self.network, "unshare", "--uts", "--mount", "sh", "-c", APART, "sh", self.name]
            command = [*apart, *away, "--", *command]
        with (self.folder / "worker.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment, **own, "OMP_NUM_THREADS": "1"},
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

    def leave(self) -> None:
        """Told to end, as when the machine is shut down; returns when nothing of it is left."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def has(self, pid: int) -> bool:
        """Whether a process is one of the host's."""
        return self._is_of_it(Path("/proc", str(pid)))

    def _is_of_it(self, entry: Path) -> bool:
        try:
            return f"KNOCKOUT_HOME={self.folder / 'workspace'}\0".encode() in (entry / "environ").read_bytes()
        except OSError:
            return False


@dataclass(frozen=True)
class Hosts:
    """Hosts that work for a pool, and what they share: variables of the environment, as this machine has them."""

    pool: str
    all: tuple[Host, ...]
    shared: Mapping[str, str]
    prefect: str
    """The address of Prefect's server."""

    def flow_runs(self, **filters: Any) -> list[dict[str, Any]]:
        """What Prefect says of flow runs, oldest first."""
        address, found = f"{self.prefect}/api/flow_runs/filter", list[dict[str, Any]]()
        while True:
            asked = {"flow_runs": filters, "sort": "START_TIME_ASC", "limit": 200, "offset": len(found)}
            answer = httpx.post(address, json=asked, timeout=30.0, trust_env=False)
            assert answer.is_success, answer.text
            found += answer.json()
            if len(answer.json()) < 200:
                return found


@contextmanager
def hosts_at_work(
    *names: str, pool: str, folder: Path, shared: Mapping[str, str], services: tuple[int, ...], hidden: tuple[Path, ...]
) -> Iterator[Hosts]:
    """Hosts that reach services on ports of this machine; they see neither each other's folders nor the hidden ones."""
    port = free_port()
    shared = {**shared, "PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}
    with ExitStack() as spaces:
        _serve_prefect(folder / "services", port=port, environment=shared, spaces=spaces)
        made = [_make_host(name, number=number, folder=folder / name, spaces=spaces) for number, name in enumerate(names)]
        for host in made:
            host.line.open(*services, port)
            reached = {name: host.line.through(value) for name, value in shared.items()}
            host.environment |= {**reached, "no_proxy": host.line.address}
            host.hidden += [*(other.folder for other in made if other is not host), *hidden, folder / "services"]
        until(lambda: _answers(f"http://127.0.0.1:{port}/api/health"))
        yield Hosts(pool, tuple(made), shared, f"http://127.0.0.1:{port}")


def _make_host(name: str, *, number: int, folder: Path, spaces: ExitStack) -> Host:
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


def _serve_prefect(folder: Path, *, port: int, environment: Mapping[str, str], spaces: ExitStack) -> None:
    server, database = catalog.PREFECT, environment["KNOCKOUT_DATABASE"]
    server.folder(folder).mkdir(parents=True)
    (folder / "database").write_text(database)
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
