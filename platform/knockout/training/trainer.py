"""Lightning, set up for one run: its loop and its precision, and none of its own records.

The invariant: what a run records, where it stops and what it saves is decided elsewhere.
"""

from __future__ import annotations

import logging
import os
import warnings

import pytorch_lightning as pl
from lightning_fabric.plugins.environments.lightning import LightningEnvironment

from knockout.training.spec import RunSpec, Runtime


def make_trainer(spec: RunSpec, *, callback: pl.Callback, runtime: Runtime, steps: int) -> pl.Trainer:
    """A trainer for so many optimizer steps of a run."""
    return pl.Trainer(
        accelerator="gpu" if runtime.device == "cuda" else "cpu",
        devices=1,
        precision="bf16-mixed" if spec.recipe.precision == "bf16" else "32-true",
        max_steps=steps,
        max_epochs=-1,
        accumulate_grad_batches=spec.recipe.accumulate,
        callbacks=[callback],
        plugins=[LightningEnvironment()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        limit_val_batches=0,
        default_root_dir=spec.folder,
    )


def quiet_lightning() -> None:
    """Lightning's advice about loaders and hardware does not apply: the data has no workers, and the device is chosen."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    os.environ["PL_DISABLE_FORK"] = "1"
    warnings.filterwarnings("ignore", module=r"pytorch_lightning\..*")
