"""Runs that are killed at random points, by hand of an owner that has a warm parent of training processes at hand.

What is random is drawn from `random.Random(seed)`: at which step, or in the writing of which file, the process dies. The
moment within that is the machine's; a test holds for every moment.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from commands import kill, until

from knockout.corpus.prepare import Prepared
from knockout.declare.document import Document
from knockout.declare.settings import defaults
from knockout.ledger.identity import identity, meaning
from knockout.ledger.process import this_process
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import open_workspace, write_json
from knockout.services.environment import quiet_environment
from knockout.training.execute import Execution, Limits, execute
from knockout.training.launcher import Nursery
from knockout.training.spec import MEANING, Runtime

KILLS_IN_CI = 48
PER_RUN = 8
SETTINGS = {
    "width": 16, "heads": 2, "depth": 2, "context": 16, "vocabulary": 32, "batch": 4, "tokens": 25_600,
    "learning_rate": 0.005, "warmup_steps": 10, "accumulate": 2, "dropout": 0.1, "evaluations": 40,
}  # fmt: skip
"""400 steps of 64 tokens, a checkpoint each 10: eight epochs of the corpus, with warm-up and cosine."""
WRITING = ("checkpoints/.*", "metrics/.*", ".metrics.parquet.*", ".weights.pt.*", ".result.json.*")
"""Temporary names of a checkpoint, a segment of metrics, and the three files that seal a run."""


@dataclass(frozen=True)
class Moment:
    """When a process is killed: once a checkpoint has this step, or in the writing of a file of this name."""

    step: int | None = None
    writing: str | None = None

    def has_come(self, folder: Path, *, left: set[Path]) -> bool:
        """`left` are temporary files of processes that were killed before."""
        if self.writing is not None:
            return not left.issuperset(folder.glob(self.writing))
        return max((int(path.stem) for path in folder.glob("checkpoints/[0-9]*.pt")), default=0) >= (self.step or 0)


def moments(seed: int, *, count: int, steps: int) -> list[Moment]:
    """Random moments in the order in which they come: at steps, in the writing of a checkpoint or of metrics, in sealing."""
    draw = random.Random(seed)
    num_sealing = draw.randrange(1, 1 + count // 3)
    at_steps = sorted(draw.randrange(1, steps) for _ in range(count - num_sealing))
    training = [Moment(step=step) if draw.random() < 0.6 else Moment(writing=draw.choice(WRITING[:2])) for step in at_steps]
    return [*training, *(Moment(writing=draw.choice(WRITING[2:])) for _ in range(num_sealing))]


@dataclass
class Laboratory:
    """A ledger, a warm parent and a corpus."""

    folder: Path
    ledger: Ledger
    nursery: Nursery
    corpus: Prepared

    @classmethod
    def opened(cls, folder: Path, *, corpus: Prepared) -> Iterator[Laboratory]:
        ledger = Ledger(open_workspace(folder / "home"))
        nursery = Nursery(quiet_environment(folder), log=folder / "nursery.log")
        yield cls(folder, ledger, nursery, corpus)
        nursery.close()
        ledger.close()

    def ask(self, *, seed: int, **changes: object) -> str:
        """A run that the ledger knows; its identity."""
        architecture, recipe = defaults().over(Document({**SETTINGS, **changes}, {})).resolve()
        exam = {**self.corpus.manifest.evaluation.model_dump(mode="json"), "window": architecture.context}
        data = meaning(
            architecture=architecture, recipe=recipe, corpus=self.corpus.manifest.digest, evaluation=exam, seed=seed
        )
        name = identity(data)
        folder = self.ledger.workspace.run(name)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / MEANING, data=data)
        ask = {
            "identity": name, "meaning": data, "planned_steps": recipe.num_steps(context=architecture.context), "flops": 1.0,
            "variant": "baseline", "size": "pico", "seed": seed, "role": "judged",
        }  # fmt: skip
        self.ledger.submit(f"{name}-{time.monotonic_ns()}", study="x", plan="", owner=this_process(), runs=[ask])
        return name

    def bring(self, name: str) -> Execution:
        """Bring a run to its end."""
        return execute(
            name,
            ledger=self.ledger,
            owner=this_process(),
            nursery=self.nursery,
            runtime=Runtime(corpus=str(self.corpus.folder)),
            environment={},
            limits=Limits(),
        )

    def kill_at(self, name: str, moment: Moment, *, halted: bool) -> Execution:
        """Bring a run to where it is killed, or to its end if that comes first; `halted` stops the process before."""
        folder = self.ledger.workspace.run(name)
        left = {path for name in WRITING for path in folder.glob(name)}
        ended: list[Execution] = []
        thread = threading.Thread(target=lambda: ended.append(self.bring(name)))
        before = len(self.nursery.children)
        thread.start()
        until(lambda: len(self.nursery.children) > before or not thread.is_alive(), every=0.0005)
        child = self.nursery.children.get(before)
        until(
            lambda: not thread.is_alive() or (child and child.ended.is_set()) or moment.has_come(folder, left=left),
            every=0.0002,
        )
        if child is not None and child.pid is not None and not child.ended.is_set():
            if halted and kill(child.pid, signal.SIGSTOP):
                time.sleep(0.01)
            kill(child.pid)
        thread.join(60)
        return ended[0]


def kill_tree(pids: dict[int, str]) -> None:
    """Kill every process at once, as a machine that loses its power does."""
    for pid in pids:
        kill(pid, signal.SIGSTOP)
    for pid in pids:
        kill(pid)
