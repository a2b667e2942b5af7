"""What a training process is told: the run's meaning, which bears identity, and its runtime, which never does."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from knockout.declare.architecture import Architecture
from knockout.declare.parallelism import Strategy
from knockout.declare.recipe import Recipe

MEANING = "meaning.json"
RESULT = "result.json"
METRICS = "metrics.parquet"
WEIGHTS = "weights.pt"
SEGMENTS = "metrics"
CHECKPOINTS = "checkpoints"
SPEED = "speed.json"
"""What a calibration found."""
PASSED_OVER = "passed-over.txt"
"""Why the newest process of the run did not go on from the newest checkpoint; there only where it did not."""
LOG = "log.txt"
LOCK = "lock"
"""Held by the process that trains the run."""

EXIT_STOPPED = 143
"""Exit code of a training process that was asked to stop, and left a checkpoint."""

EXIT_NO_MEMORY = 71
"""EX_OSERR of sysexits(3): the machine, or the GPU, had no memory left."""
EXIT_UNWRITABLE = 74
"""Exit code of a training process whose folder cannot be written (EX_IOERR): the disk that is full holds its log too."""


@dataclass(frozen=True)
class Runtime:
    """Where and how a run is executed."""

    corpus: str
    """Folder of the prepared corpus."""
    threads: int = 1
    """Threads that the run may use on the CPU."""
    device: str = "cpu"
    """cpu or cuda."""
    devices: int = 1
    """Devices that share the run, a process each; more than one is more than one rank."""
    strategy: Strategy = "ddp"
    """What the ranks share: data alone, or weights, gradients and moments too."""
    checkpoint_seconds: float = 30.0
    """Largest time between two checkpoints."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the way to the training process."""
        return asdict(self)


@dataclass(frozen=True)
class RunSpec:
    """A run's meaning, read back as declarations."""

    folder: Path
    architecture: Architecture
    recipe: Recipe
    evaluation: dict[str, Any]
    corpus: str
    seed: int

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.recipe.num_steps(context=self.architecture.context)

    @property
    def tokens_per_step(self) -> int:
        """Tokens that an optimizer step sees."""
        return self.recipe.batch * self.architecture.context


def read_spec(folder: Path) -> RunSpec:
    """The spec that lies in a run's folder."""
    data = json.loads((folder / MEANING).read_text())
    return RunSpec(
        folder=folder,
        architecture=Architecture.model_validate_json(json.dumps(data["architecture"])),
        recipe=Recipe.model_validate_json(json.dumps(data["recipe"])),
        evaluation=data["evaluation"],
        corpus=data["corpus"],
        seed=data["seed"],
    )
