"""A project folder with tiny studies, and real `knockout` processes in it."""

from __future__ import annotations

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

from knockout.ledger.store import Ledger, LedgerRun, Submission
from knockout.ledger.workspace import open_workspace

DEADLINE_SECONDS = 120.0
MAIN = "from knockout.cli import main; main()"

TINY = """corpus: tiny
source: {kind: markov, order: 1, alphabet: 16, documents: 60, length: 60}
tokenizer: {kind: identity}
validation: 0.2
evaluation: {tokens: 256, segments: 8}
"""
STUDY = """study: small
question: Does a tiny stack learn a chain without its residual path?
corpus: tiny
size: pico
baseline:
  {width: 16, heads: 2, depth: 2, context: 16, vocabulary: 32, batch: 4, tokens: 6400, warmup_steps: 10, evaluations: 20}
variants:
  no-residual: {residual: {kind: none}}
seeds: 1
competence: {floor: unigram, by: 0.1}
claims:
  - id: one
    says: It learns less without
    expect: {variant: no-residual, is: worse, than: baseline, by: 0.01}
"""
OTHER = STUDY.replace("study: small", "study: other").replace(
    "no-residual: {residual: {kind: none}}", "no-norm: {norm: {kind: none}}"
).replace("no-residual", "no-norm")  # fmt: skip
DIVERGING = STUDY.replace("study: small", "study: hot").replace(
    "no-residual: {residual: {kind: none}}", "hot: {learning_rate: 1000000.0, clip: null, norm: {kind: none}}"
).replace("variant: no-residual, is: worse", "variant: hot, is: better").replace("seeds: 1", "seeds: 3")  # fmt: skip


@dataclass
class Home:
    """A workspace in use, and what is said about it."""

    folder: Path
    project: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: str, code: str = MAIN) -> subprocess.Popen[str]:
        """A `knockout` process in the project folder."""
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=self.project,
            env={**os.environ, "KNOCKOUT_HOME": str(self.folder), "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
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

    def run(self, study: str, *arguments: str, code: str = MAIN) -> tuple[int, str]:
        """Run a study without Prefect and MLflow."""
        return self.knockout("run", study, "--no-prefect", "--no-mlflow", *arguments, code=code)

    def begin(self, study: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a study without Prefect and MLflow."""
        return self.start("run", study, "--no-prefect", "--no-mlflow", *arguments)

    def facts(self, study: str, *changes: str) -> dict[str, Any]:
        code, said = self.knockout("report", study, *changes, "--json")
        assert code == 0, said
        return json.loads(said[said.index("{") :])  # notes about the report stand before it

    def runs(self) -> list[LedgerRun]:
        """Every run of the ledger."""
        ledger = Ledger(open_workspace(self.folder))
        submitted = {identity for item in ledger.submissions() for identity, *_ in ledger.asked(item.submission)}
        found = ledger.runs(submitted)
        ledger.close()
        return found

    def submissions(self) -> list[Submission]:
        """All submissions, oldest first."""
        ledger = Ledger(open_workspace(self.folder))
        found = ledger.submissions()[::-1]
        ledger.close()
        return found

    def submission_states(self) -> list[str]:
        """States of all submissions, oldest first."""
        return [item.state for item in self.submissions()]

    def flow_runs(self) -> list[tuple[str, str, str | None]]:
        """Name, state and message of every flow run in Prefect's database, oldest first."""
        query = (
            "SELECT flow_run.name, flow_run.state_name, flow_run_state.message FROM flow_run "
            "JOIN flow_run_state ON flow_run.state_id = flow_run_state.id ORDER BY flow_run.created"
        )
        with closing(sqlite3.connect(f"file:{self.folder / 'prefect' / 'prefect.db'}?mode=ro", uri=True)) as database:
            return list(database.execute(query))

    def alive(self) -> list[str]:
        """Command lines of the processes that have this workspace in their environment."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                environment, line = (entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()
            except OSError:
                continue  # it ended meanwhile
            if f"KNOCKOUT_HOME={self.folder}\0".encode() in environment:
                found.append(line.replace(b"\0", b" ").decode())
        return found

    def newest_step(self) -> int:
        """The step of the newest checkpoint of any run; 0 when there is none."""
        return max((int(path.stem) for path in self.folder.glob("runs/*/checkpoints/*.pt")), default=0)


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name, text in {
        "data/tiny.yaml": TINY, "ablations/small.yaml": STUDY, "ablations/other.yaml": OTHER,
        "ablations/hot.yaml": DIVERGING,
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def home(tmp_path: Path, project: Path) -> Iterator[Home]:
    yield from opened(tmp_path / "home", project=project)


def opened(folder: Path, *, project: Path) -> Iterator[Home]:
    """A workspace all of whose processes are ended afterwards."""
    home = Home(folder, project)
    yield home
    for process in home.started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Iterator[Home]:
    yield from opened(tmp_path_factory.mktemp("shared") / "home", project=project)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Iterator[Home]:
    """A workspace in which two studies that share their baseline are done, with MLflow. For tests that only read or copy."""
    for home in opened(tmp_path_factory.mktemp("finished") / "home", project=project):
        for study in ("small", "other"):
            code, said = home.knockout("run", study, "--no-prefect")
            assert code == 0, said
        yield home


@pytest.fixture(scope="session")
def until() -> Callable[..., None]:
    """Wait until a condition holds; fails when it does not in time."""

    def wait(condition: Callable[[], object], *, seconds: float = DEADLINE_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"it did not happen in {seconds:g} s"
            time.sleep(0.02)

    return wait
