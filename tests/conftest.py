"""What tests of several rooms need: the options, and a PostgreSQL server of the test's own.

The server is on a free port of this machine, in a folder of its own.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "helpers"))  # what tests of several rooms import

from knockout.services.database import VARIABLE, Database
from knockout.services.processes import free_port

PASSWORD = "open-sesame"
START_SECONDS = 60.0
PR_SET_PDEATHSIG = 1
PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hosts", action="store_true", help="Three hosts in full: 24 runs instead of 12, and a search.")


def pytest_configure() -> None:
    """Heed what a script's background job and nohup(1) ignore: all that the tests start would ignore it too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@dataclass
class Postgres:
    """A server that can be stopped and started again."""

    programs: Path
    data: Path
    port: int
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def url(self) -> str:
        return f"postgresql://knockout:{PASSWORD}@127.0.0.1:{self.port}/lab"

    def start(self) -> None:
        """Start it as a child that ends with this process, however that ends."""
        with (self.data.parent / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.programs / "postgres"), "-D", str(self.data)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                preexec_fn=end_with_parent,
                **as_somebody(),
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            assert self.process.poll() is None, (self.data.parent / "log").read_text()
            assert time.monotonic() < deadline, "PostgreSQL's server did not come up"
            time.sleep(0.05)

    def stop(self, *, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self.data), "stop", "-m", mode)
        self.process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def new_database(self) -> Database:
        """An empty one."""
        name = f"lab_{time.monotonic_ns()}"
        with Database(self.url).connection() as connection:
            connection.autocommit = True
            connection.execute(f"CREATE DATABASE {name}".encode())
        return Database(self.url.replace("/lab", f"/{name}"))

    def make(self) -> None:
        secret = self.data.parent / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        options = f"--username=knockout --auth=scram-sha-256 --pwfile={secret} --no-sync --encoding=UTF8"
        self._run("initdb", "-D", str(self.data), *options.split())
        with (self.data / "postgresql.conf").open("a") as settings:
            settings.write(
                f"port = {self.port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\nfsync = off\n"
            )
        self.start()
        host = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "knockout")
        self._run("createdb", *host, "lab")

    def _is_ready(self) -> bool:
        asked = [str(self.programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [str(self.programs / program), *words],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"], "PGPASSWORD": PASSWORD, "LC_ALL": "C.UTF-8"},
            cwd="/",
            **as_somebody(),
        )
        assert done.returncode == 0, done.stdout + done.stderr


def end_with_parent() -> None:
    """In the server's process, before it is one: an immediate shutdown when the tests' process dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)


def as_somebody() -> dict[str, int]:
    """PostgreSQL's server refuses to run as root."""
    if os.getuid():
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid}


def find_programs() -> Path | None:
    """The folder with the server's programs, the newest version's."""
    if (there := shutil.which("pg_ctl")) and (Path(there).resolve().parent / "initdb").exists():
        return Path(there).resolve().parent
    found = [path for place in PLACES for path in Path("/").glob(place[1:]) if (path / "initdb").exists()]
    return max(found, default=None)


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """A command that ran in this process leaves its handlers."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL's server is not installed")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if not os.getuid():
            os.chown(folder, as_somebody()["user"], as_somebody()["group"])
        server = Postgres(programs, folder / "data", free_port())
        server.make()
        yield server
        server.stop(mode="immediate")


@pytest.fixture
def database(postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A new, empty database, which every workspace of the test uses."""
    found = postgres_server.new_database()
    monkeypatch.setenv(VARIABLE, found.address)
    monkeypatch.setenv("MLFLOW_SQLALCHEMYSTORE_POOLCLASS", "NullPool")  # MLflow never closes what its pool holds
    return found
