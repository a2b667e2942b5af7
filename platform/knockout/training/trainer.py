"""Lightning, set up for one run: its loop and its precision, and none of its own records.

The invariant: what a run records, where it stops and what it saves is decided elsewhere.
"""

from __future__ import annotations

import logging
import os
import warnings

import pytorch_lightning as pl
from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from pytorch_lightning.strategies import DDPStrategy, ModelParallelStrategy, Strategy

from knockout.training.ranks import ALONE, Copies, Parts, Ranks
from knockout.training.spec import RunSpec, Runtime


def make_trainer(spec: RunSpec, *, callback: pl.Callback, runtime: Runtime, steps: int, ranks: Ranks = ALONE) -> pl.Trainer:
    """A trainer for so many optimizer steps of a run."""
    return pl.Trainer(
        accelerator="gpu" if runtime.device == "cuda" else "cpu",
        devices=ranks.size,
        strategy=_strategy(ranks),
        precision="bf16-mixed" if spec.recipe.precision == "bf16" else "32-true",
        max_steps=steps,
        max_epochs=-1,
        accumulate_grad_batches=spec.recipe.accumulate,
        callbacks=[callback],
        plugins=[RankEnvironment(ranks)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        limit_val_batches=0,
        default_root_dir=spec.folder,
    )


class RankEnvironment(ClusterEnvironment):
    """The ranks of a run on one machine, which are there and know each other before Lightning begins."""

    def __init__(self, ranks: Ranks) -> None:
        super().__init__()
        self.ranks = ranks

    @property
    def creates_processes_externally(self) -> bool:
        """They are there."""
        return True

    @property
    def main_address(self) -> str:
        """Nobody needs to be met any more."""
        return ""

    @property
    def main_port(self) -> int:
        """Nobody needs to be met any more."""
        return 0

    @staticmethod
    def detect() -> bool:
        """Never by itself."""
        return False

    def world_size(self) -> int:
        """Of all machines, which is one."""
        return self.ranks.size

    def set_world_size(self, size: int) -> None:
        """It is known."""

    def global_rank(self) -> int:
        """Of all machines, which is one."""
        return self.ranks.rank

    def set_global_rank(self, rank: int) -> None:
        """It is known."""

    def local_rank(self) -> int:
        """The device of this machine that the rank computes on."""
        return self.ranks.rank

    def node_rank(self) -> int:
        """Of the one machine."""
        return 0


def _strategy(ranks: Ranks) -> Strategy | str:
    """How Lightning is to move gradients; `ranks` says what each of them holds."""
    match ranks:
        case Parts():
            return ModelParallelStrategy(data_parallel_size=ranks.size, tensor_parallel_size=1)
        case Copies():
            return DDPStrategy(broadcast_buffers=False, gradient_as_bucket_view=True)
        case _:
            return "auto"


def quiet_lightning() -> None:
    """Lightning's advice about loaders and hardware does not apply: the data has no workers, and the device is chosen."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    os.environ["PL_DISABLE_FORK"] = "1"
    warnings.filterwarnings("ignore", module=r"pytorch_lightning\..*")
