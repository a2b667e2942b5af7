"""What the orchestrator costs: a real submission whose runs rest instead of training.

The invariant: everything but the training is what a study does: the plan, leases, sealed results, the judgement, the
report. So what is measured is what every run pays on top of its training.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from knockout.declare.load import Overrides, load_study
from knockout.ledger.lease import Lease
from knockout.ledger.workspace import Workspace, make_folder, write_atomically
from knockout.submission import plain
from knockout.submission.bind import BoundRun
from knockout.submission.listener import Listener
from knockout.submission.options import Options
from knockout.submission.road import Road
from knockout.training.execute import Early, Execution
from knockout.training.resting import RUN_SECONDS, seal
from knockout.training.spec import read_spec
from knockout.training.stop import Stop

SLOTS = 16
CORPUS = """corpus: chain
source: {kind: markov, order: 1, alphabet: 16, documents: 60, length: 60}
tokenizer: {kind: identity}
validation: 0.2
evaluation: {tokens: 256, segments: 8}
"""
STUDY = """study: simulated
question: What does it cost to have a run done?
corpus: chain
size: pico
baseline: {width: 16, heads: 2, depth: 2, context: 16, vocabulary: 32, batch: 4, tokens: 256, warmup_steps: 1}
variants:
  no-residual: {residual: {kind: none}}
controls: {aa: false}
competence: {floor: none}
claims:
  - id: worse
    says: It learns less without
    expect: {variant: no-residual, is: worse, than: baseline, by: 0.01}
"""


@dataclass(frozen=True)
class Cost:
    """What a submission cost beside its training."""

    runs: int
    cpu_seconds: float
    """Processor time of everything that is not the resting, a run."""
    fixed_cpu_seconds: float
    """Processor time until the first run could begin, once."""
    seconds: float
    """Of the whole submission, on the clock."""
    peak_bytes: int
    """The most memory that the process had."""


class RestingHands:
    """Holds each run's lease for a moment, and seals a result whose numbers are drawn from its seed."""

    def __init__(self, road: Road) -> None:
        self.road = road
        self.free = threading.Semaphore(SLOTS)
        self.begun: float | None = None

    @property
    def num_slots(self) -> int:
        """See Hands."""
        return SLOTS

    @property
    def num_threads(self) -> int:
        """See Hands."""
        return SLOTS

    def train(self, run: BoundRun, *, early: Early, began: Callable[[], None]) -> Execution:
        """See Hands."""
        ledger, owner = self.road.ledger, self.road.owner
        with self.free:
            if self.begun is None:
                self.begun = _cpu_seconds()
            assert ledger.claim(run.identity, owner=owner), "a simulated run is new"
            began()
            ledger.start(run.identity, owner=owner)
            with Lease(ledger, run.identity, owner=owner):
                time.sleep(RUN_SECONDS)
                folder = ledger.workspace.run(run.identity)
                metrics = seal(read_spec(folder), folder=folder)
            ledger.finish(
                run.identity,
                owner=owner,
                state="done",
                reason=None,
                step=run.cell.num_steps,
                seconds=RUN_SECONDS,
                metrics=metrics,
            )
        ended = ledger.run(run.identity)
        assert ended is not None
        return Execution(ended, reused=False)

    def close(self) -> None:
        """See Hands."""


def simulate(num_runs: int, *, first_seed: int, workspace: Workspace, mlflow: bool) -> Cost:
    """Bring a study of `num_runs` resting runs, two for each seed, to its report; with what is in the workspace already."""
    study = simulated_study(workspace)
    loaded = load_study(study, overrides=Overrides(seeds=num_runs // 2, from_seed=first_seed))
    hands: list[RestingHands] = []

    def resting(road: Road) -> RestingHands:
        hands.append(RestingHands(road))
        return hands[-1]

    started = time.monotonic()
    options = Options(mlflow=mlflow, prefect=False)
    road = Road(loaded, workspace=workspace, options=options, listener=Listener(), stop=Stop(), hands=resting)
    with road:
        plain.submit(road)
    begun = hands[0].begun or 0.0
    return Cost(
        runs=num_runs,
        cpu_seconds=(_cpu_seconds() - begun) / num_runs,
        fixed_cpu_seconds=begun,
        seconds=time.monotonic() - started,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def simulated_study(workspace: Workspace) -> Path:
    """The study's file, in a project of its own, which becomes the current folder."""
    folder = workspace.folder / "simulated"
    for name, text in {"data/chain.yaml": CORPUS, "ablations/simulated.yaml": STUDY}.items():
        make_folder((folder / name).parent)
        write_atomically(folder / name, text=text)
    os.chdir(folder)
    return folder / "ablations" / "simulated.yaml"


def _cpu_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)
