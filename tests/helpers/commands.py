"""A workspace in use: real `knockout` processes in it, and everything that is recorded of them.

The invariant: what a test starts here has this workspace in its environment, and is ended with the workspace.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from knockout.cli.app import run as run_command
from knockout.ledger.store import Ledger, LedgerRun, Submission
from knockout.ledger.workspace import Workspace, open_workspace

DEADLINE_SECONDS = 300.0
MAIN = "from knockout.cli import main; main()"
ALONE = ("--no-prefect", "--no-mlflow")
ENDLESS = ("--set", "tokens=64000000", "--set", "evaluations=5000")
"""A million steps of 64 tokens, with a checkpoint each 200: about one a second."""

TINY = """corpus: tiny
source: {kind: markov, order: 1, alphabet: 16, documents: 60, length: 60}
tokenizer: {kind: identity}
validation: 0.2
evaluation: {tokens: 256, segments: 8}
"""


@dataclass
class Home:
    """A workspace, and the commands that were started in it."""

    folder: Path
    project: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its commands."""
        own = {"KNOCKOUT_HOME": str(self.folder), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        return {**os.environ, **self.environment, **own}

    def start(self, *arguments: str, code: str = MAIN) -> subprocess.Popen[str]:
        """A `knockout` process in the project's folder."""
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=self.project,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def finish(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Exit code and everything that was printed."""
        said, _ = process.communicate(timeout=DEADLINE_SECONDS)
        return process.returncode, said

    def knockout(self, *arguments: str, code: str = MAIN) -> tuple[int, str]:
        """Run a command to its end."""
        return self.finish(self.start(*arguments, code=code))

    def here(self, *arguments: str) -> tuple[int, str]:
        """Run a command to its end in this process, which spares its imports: one that starts no work of its own."""
        said = io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
        ):
            patch.chdir(self.project)
            patch.setattr(sys, "argv", ["knockout", *arguments])
            for name, value in self.variables.items():
                patch.setenv(name, value)
            code = ended_with(run_command)
        return code, said.getvalue()

    def begin(self, study: str, *arguments: str, code: str = MAIN) -> subprocess.Popen[str]:
        """Start a study without Prefect and MLflow."""
        return self.start("run", study, *ALONE, *arguments, code=code)

    def run(self, study: str, *arguments: str, code: str = MAIN) -> tuple[int, str]:
        """Run a study without Prefect and MLflow."""
        return self.finish(self.begin(study, *arguments, code=code))

    def facts(self, study: str, *arguments: str) -> dict[str, Any]:
        """What the report of a study knows."""
        code, said = self.here("report", study, *arguments, "--json")
        assert code == 0, said
        return json.loads(said[said.index("{") :])  # notes about the report stand before it

    @property
    def workspace(self) -> Workspace:
        return open_workspace(self.folder)

    @contextlib.contextmanager
    def ledger(self) -> Iterator[Ledger]:
        ledger = Ledger(self.workspace)
        yield ledger
        ledger.close()

    def runs(self) -> list[LedgerRun]:
        """Every run of the ledger."""
        with self.ledger() as ledger:
            submitted = {identity for one in ledger.submissions() for identity, *_ in ledger.asked(one.submission)}
            return ledger.runs(submitted)

    def submissions(self) -> list[Submission]:
        """All submissions, oldest first."""
        with self.ledger() as ledger:
            return ledger.submissions()[::-1]

    def submission_states(self) -> list[str]:
        """States of all submissions, oldest first."""
        return [one.state for one in self.submissions()]

    def flow_runs(self) -> list[tuple[str, str, str | None]]:
        """Name, state and message of every flow run in Prefect's database, oldest first."""
        query = (
            "SELECT flow_run.name, flow_run.state_name, flow_run_state.message FROM flow_run "
            "JOIN flow_run_state ON flow_run.state_id = flow_run_state.id ORDER BY flow_run.created"
        )
        with closing(sqlite3.connect(f"file:{self.folder / 'prefect' / 'prefect.db'}?mode=ro", uri=True)) as database:
            return list(database.execute(query))

    def alive(self) -> dict[int, str]:
        """Command lines of the processes that have this workspace in their environment, by process id."""
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                environment, line = (entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
            except OSError:
                continue  # it ended meanwhile
            if f"KNOCKOUT_HOME={self.folder}\0".encode() in environment and state not in (b"Z", b"X"):
                found[int(entry.name)] = line.replace(b"\0", b" ").decode()
        return found

    def nursery(self) -> int | None:
        """The process id of the parent of the training processes, which leads its session."""
        found = self._nurseries()
        return next((pid for pid in found if parent_of(pid) not in found), None)

    def trainings(self) -> list[int]:
        """The process ids of the training processes."""
        found = self._nurseries()
        return [pid for pid in found if parent_of(pid) in found]

    def _nurseries(self) -> list[int]:
        return [pid for pid, line in self.alive().items() if "knockout.training.nursery" in line]

    def until_trainings(self, number: int, *, of: subprocess.Popen[str]) -> None:
        """Wait until so many runs have their process, or the command has ended. A look at every process takes a while."""
        until(lambda: len(self.trainings()) == number or of.poll() is not None, every=0.1)

    def until_gone(self, *, seconds: float = 15.0) -> None:
        """Wait until nothing that has this workspace lives; fails when something does for longer."""
        deadline = time.monotonic() + seconds
        while left := self.alive():
            assert time.monotonic() < deadline, f"after {seconds:g} s there still are {[*map(_told, left.items())]}"
            time.sleep(0.1)

    def newest_step(self) -> int:
        """The step of the newest checkpoint of any run; 0 when there is none."""
        return max((int(path.stem) for path in self.folder.glob("runs/*/checkpoints/[0-9]*.pt")), default=0)

    def steps(self) -> int:
        """The steps of the newest checkpoints of all runs, and of sealed runs, together."""
        total = 0
        for folder in (self.folder / "runs").glob("*"):
            sealed = (folder / "result.json").exists()
            total += 10_000 if sealed else max((int(p.stem) for p in folder.glob("checkpoints/[0-9]*.pt")), default=0)
        return total


def opened(folder: Path, *, project: Path) -> Iterator[Home]:
    """A workspace all of whose processes are ended afterwards."""
    home = Home(folder, project)
    yield home
    for process in home.started:
        if process.poll() is None:
            kill(process.pid, signal.SIGCONT)
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    for pid in home.alive():
        kill(pid)


def ended_with(work: Callable[[], None]) -> int:
    """The exit code with which a function ends the process, were it not for this."""
    try:
        work()
    except SystemExit as ending:
        return int(ending.code or 0)
    return 0


def parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def kill(pid: int | None, number: int = signal.SIGKILL) -> bool:
    """Signal a process; False when it is gone."""
    if pid is None:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _told(process: tuple[int, str]) -> str:
    """A process with its command, its state, its parent and where in the kernel it waits."""
    pid, line = process
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        kept = [" ".join(one.split()) for one in status if one.startswith(("State", "PPid", "SigPnd", "ShdPnd"))]
        return f"{pid} {line}: {', '.join(kept)}, in {Path(f'/proc/{pid}/wchan').read_text()}"
    return f"{pid} {line}"


def until(condition: Callable[[], object], *, seconds: float = DEADLINE_SECONDS, every: float = 0.01) -> None:
    """Wait until a condition holds; fails when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen in {seconds:g} s"
        time.sleep(every)


def write_files(folder: Path, *, files: dict[str, str]) -> Path:
    """A project's folder with these files, by path from it."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
