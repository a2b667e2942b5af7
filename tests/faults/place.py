"""A workspace in use: real `knockout` processes in it, and everything that is recorded of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from knockout.ledger.store import Ledger
from knockout.ledger.workspace import Workspace, open_workspace

DEADLINE_SECONDS = 180.0
MAIN = "from knockout.cli import main; main()"
ALONE = ("--no-prefect", "--no-mlflow")

TINY = """corpus: tiny
source: {kind: markov, order: 1, alphabet: 16, documents: 60, length: 60}
tokenizer: {kind: identity}
validation: 0.2
evaluation: {tokens: 256, segments: 8}
"""
MODEL = """  {width: 16, heads: 2, depth: 2, context: 16, vocabulary: 32, batch: 4, learning_rate: 0.005, warmup_steps: 10,
   accumulate: 2, dropout: 0.1, evaluations: 20, tokens: TOKENS}
"""
RESUMED = f"""study: resumed
question: Does a run that was killed end as one that was not?
corpus: tiny
size: pico
baseline:
{MODEL.replace("TOKENS", "12800")}variants:
  no-residual: {{residual: {{kind: none}}}}
seeds: 1
competence: {{floor: unigram, by: 0.1}}
claims:
  - id: one
    says: It learns less without
    expect: {{variant: no-residual, is: worse, than: baseline, by: 0.01}}
"""
"""200 steps of 64 tokens: four epochs of the corpus; accumulation, dropout, warm-up and cosine; a checkpoint each 10."""
SIBLING = RESUMED.replace("study: resumed", "study: sibling").replace("no-residual: {residual: {kind: none}}",
    "no-norm: {norm: {kind: none}}").replace("no-residual", "no-norm")  # fmt: skip
TUNED = RESUMED.replace("study: resumed", "study: tuned").replace("seeds: 1", """seeds: 1
tune:
  learning_rate: {low: 1.0e-3, high: 1.0e-1}
  trials: 3
  pruner: {kind: median, startup: 1, after: 0.25}""").replace("12800", "6400")  # fmt: skip
SETTLED = RESUMED.replace("study: resumed", "study: settled").replace("seeds: 1", "seeds: 3\nsettle: [4]").replace(
    "no-residual: {residual: {kind: none}}", "again: {warmup_steps: 11}").replace("no-residual", "again").replace(
    "by: 0.01", "by: 0.0001").replace("12800", "3200")  # fmt: skip
"""The variant is so like the baseline that its claim stays open, and its further seeds are wanted."""


@dataclass
class Place:
    """A workspace, and the commands that were started in it."""

    folder: Path
    project: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *arguments: str, code: str = MAIN) -> subprocess.Popen[str]:
        """A `knockout` process in the project's folder."""
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=self.project,
            env={**os.environ, **self.environment, "KNOCKOUT_HOME": str(self.folder), "OMP_NUM_THREADS": "1"},
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

    def begin(self, study: str, *arguments: str, code: str = MAIN) -> subprocess.Popen[str]:
        """Start a study without Prefect and MLflow."""
        return self.start("run", study, *ALONE, *arguments, code=code)

    def run(self, study: str, *arguments: str, code: str = MAIN) -> tuple[int, str]:
        """Run a study without Prefect and MLflow."""
        return self.finish(self.begin(study, *arguments, code=code))

    @property
    def workspace(self) -> Workspace:
        return open_workspace(self.folder)

    @contextlib.contextmanager
    def ledger(self) -> Iterator[Ledger]:
        ledger = Ledger(self.workspace)
        yield ledger
        ledger.close()

    def states(self) -> list[str]:
        """States of all submissions, oldest first."""
        with self.ledger() as ledger:
            return [one.state for one in ledger.submissions()[::-1]]

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

    def steps(self) -> int:
        """The steps of the newest checkpoints of all runs, and of sealed runs, together."""
        total = 0
        for folder in (self.folder / "runs").glob("*"):
            sealed = (folder / "result.json").exists()
            total += 10_000 if sealed else max((int(p.stem) for p in folder.glob("checkpoints/[0-9]*.pt")), default=0)
        return total


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


def until(condition: Callable[[], object], *, seconds: float = DEADLINE_SECONDS, every: float = 0.01) -> None:
    """Wait until a condition holds; fails when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen in {seconds:g} s"
        time.sleep(every)


def write_project(folder: Path) -> Path:
    """The folder of a project with the studies of this suite."""
    for name, text in {
        "data/tiny.yaml": TINY, "ablations/resumed.yaml": RESUMED, "ablations/sibling.yaml": SIBLING,
        "ablations/tuned.yaml": TUNED, "ablations/settled.yaml": SETTLED,
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def opened(folder: Path, *, project: Path) -> Iterator[Place]:
    """A workspace all of whose processes are ended afterwards."""
    place = Place(folder, project)
    yield place
    for process in place.started:
        if process.poll() is None:
            kill(process.pid, signal.SIGCONT)
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    for pid in place.alive():
        kill(pid)
