"""The Lightning callback that looks after a run: metrics, evaluation, checkpoints, progress, and the wish to stop.

The invariant: what is written at a step is written in this order: evaluation, metrics segment, checkpoint. So a
checkpoint's metrics are on disk before it is, and no evaluation falls between the two. Nothing is written before all
steps up to it were found finite. Of several ranks the first one writes, and all of them evaluate, save and stop at the
same steps.
"""

from __future__ import annotations

import math
import os
import signal
import time
from typing import Any

import pytorch_lightning as pl

from knockout.training.checkpoints import save_checkpoint
from knockout.training.evaluation import Exam, evaluate
from knockout.training.metrics import Metrics
from knockout.training.module import Diverged, LanguageModule, Step, as_declared, read_steps
from knockout.training.progress import PROGRESS, encode_progress
from knockout.training.ranks import Ranks
from knockout.training.spec import RunSpec, Runtime
from knockout.training.timing import Stopwatch

PROGRESS_SECONDS = 0.5
STEPS_AT_ONCE = {"cpu": 1, "cuda": 32}
"""Steps whose numbers are read from the device together: reading one makes the processor wait for a GPU."""


GO_ON, SAVE, STOP = range(3)
"""What a rank wishes to do after a step; the strongest wish is done by all."""


class Stopped(Exception):
    """The run was asked to stop, and did after a whole step, with a checkpoint."""


class Recorder(pl.Callback):
    """Acts after each optimizer step, on the CPU; after several at once on a GPU."""

    def __init__(
        self,
        *,
        spec: RunSpec,
        runtime: Runtime,
        exam: Exam,
        metrics: Metrics,
        stopwatch: Stopwatch,
        ranks: Ranks,
    ) -> None:
        self.ranks = ranks
        self.spec = spec
        self.runtime = runtime
        self.exam = exam
        self.metrics = metrics
        self.stopwatch = stopwatch
        self.stop_requested = False
        self.taken: list[Step] = []
        self.train_loss = math.nan
        self.final: dict[str, float] = {}
        self.evaluation_steps = set(spec.recipe.evaluation_steps(context=spec.architecture.context))
        self.progress = os.open(spec.folder / PROGRESS, os.O_WRONLY | os.O_CREAT)
        self.checkpointed = self.reported = self.read = self.timed = time.monotonic()
        self.timed_step = 0
        self.steps_at_once = 1

    def heed_sigterm(self) -> None:
        """Take SIGTERM as the wish to stop after the step."""
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stop_requested", True))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The clock of tokens_per_second starts here, not with the import of libraries.

        By now Lightning has put a handler of its own around ours, which would end the run inside a step.
        """
        assert isinstance(pl_module, LanguageModule)
        self.heed_sigterm()
        if self.ranks.most([self._wish()]) == [STOP]:
            raise Stopped
        self.read = time.monotonic()
        self.timed, self.timed_step = time.monotonic(), pl_module.step
        self.stopwatch.start_steps()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Record the step that has just ended; with accumulation most micro-batches end none."""
        assert isinstance(pl_module, LanguageModule)
        if len(pl_module.micro_losses) < self.spec.recipe.accumulate:
            return
        self.taken.append(pl_module.take_step())
        evaluated = pl_module.step in self.evaluation_steps
        if not evaluated and len(self.taken) < self.steps_at_once:
            return
        wish, self.steps_at_once = self.ranks.most([self._wish(), self._pace()])
        saved, stop = evaluated or wish >= SAVE, wish == STOP
        self._read()
        began = self.stopwatch.clock()
        if evaluated:
            self._evaluate(pl_module)
        if saved:
            self.metrics.flush()
            self._checkpoint(trainer, pl_module)
        if evaluated:
            self.stopwatch.add_evaluation(since=began)
            self.timed, self.timed_step = time.monotonic(), pl_module.step
        self.read = time.monotonic()
        if self.ranks.is_first and (saved or self.read - self.reported > PROGRESS_SECONDS):
            self.reported = self.read
            os.pwrite(self.progress, encode_progress(step=pl_module.step, train_loss=self.train_loss), 0)
        if stop:
            raise Stopped

    def _wish(self) -> int:
        if self.stop_requested:
            return STOP
        return SAVE if time.monotonic() - self.checkpointed > self.runtime.checkpoint_seconds else GO_ON

    def _pace(self) -> int:
        """How many steps to read together next: as many as are taken between two showings of progress."""
        elapsed = max(time.monotonic() - self.read, 1e-9)
        return max(1, min(STEPS_AT_ONCE[self.runtime.device], int(len(self.taken) * PROGRESS_SECONDS / elapsed)))

    def _read(self) -> None:
        """Record the steps since the last reading; a step that is not finite ends the run before anything is saved."""
        taken, self.taken = self.taken, []
        for step, values in read_steps(taken):
            self.train_loss = values["train_loss"]
            self.metrics.add(step, values)

    def _evaluate(self, module: LanguageModule) -> None:
        elapsed = max(time.monotonic() - self.timed, 1e-9)
        tokens = (module.step - self.timed_step) * self.spec.tokens_per_step
        values = module.probes.updates()
        with as_declared(self.spec.recipe), self.ranks.gathered(module.network):
            self.final = evaluate(module.network, exam=self.exam, causal=self.spec.architecture.causal)
        if not all(map(math.isfinite, self.final.values())):
            raise Diverged(step=module.step, what="the evaluation loss")
        (peak,) = self.ranks.most([module.memory.most])
        cost = {"tokens_per_second": tokens / elapsed, "peak_memory_bytes": float(peak)}
        self.metrics.add(module.step, {**self.final, **values, **cost})

    def _checkpoint(self, trainer: pl.Trainer, module: LanguageModule) -> None:
        state = {"network": module.network.state_dict(), "optimizer": trainer.optimizers[0].state_dict()}
        whole = self.ranks.whole_state(state)
        if self.ranks.is_first:
            save_checkpoint(self.spec.folder, step=module.step, state=whole)
        self.checkpointed = time.monotonic()
