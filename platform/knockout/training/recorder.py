"""The Lightning callback that looks after a run: metrics, evaluation, checkpoints, progress, and the wish to stop.

The invariant: what is written at a step is written in this order: evaluation, metrics segment, checkpoint. So a
checkpoint's metrics are on disk before it is, and no evaluation falls between the two.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any

import pytorch_lightning as pl

from knockout.training.checkpoints import save_checkpoint
from knockout.training.evaluation import Exam, evaluate
from knockout.training.metrics import MetricLog
from knockout.training.module import Diverged, LanguageModule
from knockout.training.progress import PROGRESS, encode_progress
from knockout.training.spec import RunSpec, Runtime

PROGRESS_SECONDS = 0.5


class Stopped(Exception):
    """The run was asked to stop, and did after a whole step, with a checkpoint."""


class Recorder(pl.Callback):
    """Acts after each optimizer step."""

    def __init__(self, *, spec: RunSpec, runtime: Runtime, exam: Exam, metrics: MetricLog) -> None:
        self.spec = spec
        self.runtime = runtime
        self.exam = exam
        self.metrics = metrics
        self.stop_requested = False
        self.final: dict[str, float] = {}
        self.evaluation_steps = set(spec.recipe.evaluation_steps(context=spec.architecture.context))
        self.progress = os.open(spec.folder / PROGRESS, os.O_WRONLY | os.O_CREAT)
        self.checkpointed = self.reported = self.timed = time.monotonic()
        self.timed_step = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The clock of tokens_per_second starts here, not with the import of libraries."""
        assert isinstance(pl_module, LanguageModule)
        self.timed, self.timed_step = time.monotonic(), pl_module.step

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Record the step that has just ended; with accumulation most micro-batches end none."""
        assert isinstance(pl_module, LanguageModule)
        if len(pl_module.micro_losses) < self.spec.recipe.accumulate:
            return
        values = pl_module.take_step()
        step = pl_module.step
        self.metrics.add(step, values)
        if step in self.evaluation_steps:
            self._evaluate(pl_module)
        now = time.monotonic()
        if step in self.evaluation_steps or self.stop_requested or now - self.checkpointed > self.runtime.checkpoint_seconds:
            self.metrics.flush()
            self._checkpoint(trainer, pl_module)
        if now - self.reported > PROGRESS_SECONDS or step in self.evaluation_steps:
            self.reported = now
            os.pwrite(self.progress, encode_progress(step=step, train_loss=values["train_loss"]), 0)
        if self.stop_requested:
            raise Stopped

    def _evaluate(self, module: LanguageModule) -> None:
        elapsed = max(time.monotonic() - self.timed, 1e-9)
        tokens = (module.step - self.timed_step) * self.spec.tokens_per_step
        values = module.probes.updates()
        self.final = evaluate(module.network, exam=self.exam, causal=self.spec.architecture.causal)
        if not all(map(math.isfinite, self.final.values())):
            raise Diverged(step=module.step, what="the evaluation loss")
        self.metrics.add(module.step, {**self.final, **values, "tokens_per_second": tokens / elapsed})
        self.timed, self.timed_step = time.monotonic(), module.step

    def _checkpoint(self, trainer: pl.Trainer, module: LanguageModule) -> None:
        state = {"network": module.network.state_dict(), "optimizer": trainer.optimizers[0].state_dict()}
        save_checkpoint(self.spec.folder, step=module.step, state=state)
        self.checkpointed = time.monotonic()
