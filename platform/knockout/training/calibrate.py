"""A calibration: some real steps and a part of an exam, in a process like a run's, to say how long a run will take.

The invariant: what is timed is what a run computes (its network, optimiser, loop and exam) on random tokens; nothing of it
is a result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from knockout.declare.recipe import DocumentPacking
from knockout.ledger.workspace import write_json
from knockout.model import Network, build
from knockout.model.objective import next_token_logits
from knockout.training.checkpoints import save_checkpoint
from knockout.training.evaluation import GENERATION_WINDOWS, WINDOWS_AT_ONCE, Exam, evaluate, sees_all_at_once
from knockout.training.memory import peak_memory
from knockout.training.module import LanguageModule, as_declared
from knockout.training.spec import SPEED, RunSpec, Runtime, read_spec
from knockout.training.timing import Clock, Stopwatch, Timing, clock
from knockout.training.trainer import make_trainer, quiet_lightning

WARM_STEPS = 2
"""The first ones, in which kernels are made."""
LEAST_STEPS, MOST_STEPS = 3, 50
TIMED_SECONDS = 0.4
"""Steps are timed until so much has passed, but so many at least and at most."""
PREFIXES = 4
"""Lengths for which the run of a prefix by itself is timed."""
END_OF_TEXT = 0
"""Which of the random tokens ends a document; one stands in the middle of every window."""


def calibrate(folder: Path, *, runtime: Runtime) -> int:
    """Time the run that is declared in `folder`, and write what was found there; nothing is compiled.

    Returns:
        The exit code, 0.
    """
    quiet_lightning()
    torch.set_num_threads(runtime.threads)
    stopwatch, spec = Stopwatch(clock(runtime)), read_spec(folder)
    network = build(spec.architecture, seed=spec.seed, device=runtime.device)
    memory = peak_memory(device=runtime.device)
    module = LanguageModule(network, spec=spec, step=0, optimizer_state=None, memory=memory, end_of_text=_border(spec))
    module.evaluation_steps = set()
    steps = StepTimer(stopwatch)
    trainer = make_trainer(spec, callback=steps, runtime=runtime, steps=WARM_STEPS + MOST_STEPS)
    trainer.fit(module, train_dataloaders=RandomBatches(spec, device=runtime.device))
    with as_declared(spec.recipe), torch.no_grad():
        evaluating = _evaluation_seconds(network.eval(), spec=spec, clock=stopwatch.clock, device=runtime.device)
    began = stopwatch.clock()
    state = {"network": network.state_dict(), "optimizer": trainer.optimizers[0].state_dict()}
    save_checkpoint(folder, step=module.step, state=state)
    timing = Timing(
        start_seconds=stopwatch.first_step - stopwatch.began,
        step_seconds=steps.mean,
        evaluation_seconds=evaluating + stopwatch.clock() - began,
    )
    write_json(folder / SPEED, data=asdict(timing))
    return 0


class RandomBatches:
    """Micro-batches [batch / accumulate, context + 1] of random tokens."""

    def __init__(self, spec: RunSpec, *, device: str) -> None:
        self.spec = spec
        self.device = device

    def __iter__(self) -> Iterator[Tensor]:
        recipe, architecture = self.spec.recipe, self.spec.architecture
        rows = recipe.batch // recipe.accumulate
        while True:
            yield _windows(rows, context=architecture.context, vocabulary=architecture.vocabulary, device=self.device)


class StepTimer(pl.Callback):
    """Times optimizer steps, and ends training when it has timed enough."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self.stopwatch = stopwatch
        self.ends: list[float] = []

    @property
    def mean(self) -> float:
        """Seconds of a step, the warm ones left out."""
        timed = self.ends[WARM_STEPS - 1 :]
        return (timed[-1] - timed[0]) / (len(timed) - 1)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The start is over."""
        self.stopwatch.start_steps()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Take note of the step that has just ended."""
        assert isinstance(pl_module, LanguageModule)
        if len(pl_module.micro_losses) < pl_module.spec.recipe.accumulate:
            return
        pl_module.take_step().measured.tolist()  # a GPU has done the step by then
        self.ends.append(self.stopwatch.clock())
        timed = len(self.ends) - WARM_STEPS
        if timed >= LEAST_STEPS and self.ends[-1] - self.ends[WARM_STEPS - 1] >= TIMED_SECONDS:
            trainer.should_stop = True


def _evaluation_seconds(network: Network, *, spec: RunSpec, clock: Clock, device: str) -> float:
    """Of a whole exam, from one batch of its windows and some of the prefixes that are run by themselves."""
    architecture = spec.architecture
    context, vocabulary = architecture.context, architecture.vocabulary
    windows_BW = _windows(WINDOWS_AT_ONCE, context=context, vocabulary=vocabulary, device=device)
    few_BW = windows_BW[:GENERATION_WINDOWS]
    exam = Exam((windows_BW,), few_BW, torch.ones(vocabulary, dtype=torch.int64, device=device), _border(spec))
    num_windows = spec.evaluation["tokens"] / context
    if sees_all_at_once(architecture):
        evaluate(network, exam=exam, causal=True)
        once = _seconds(lambda: evaluate(network, exam=exam, causal=True), clock=clock)
        return once * (num_windows + len(few_BW)) / (len(windows_BW) + len(few_BW))
    lengths = [max(1, round(context * (2 * place + 1) / (2 * PREFIXES))) for place in range(PREFIXES)]
    for length in lengths:
        next_token_logits(network, few_BW[:, :length], end_of_text=exam.end_of_text)

    def alone(length: int) -> float:
        return next_token_logits(network, few_BW[:, :length], end_of_text=exam.end_of_text).sum().item()

    prefixes = [_seconds(partial(alone, length), clock=clock) for length in lengths]
    asked = exam.questions(network)
    whole = _seconds(lambda: [question.put_to(network.forward).logits_BTV.sum().item() for question in asked], clock=clock)
    return whole * num_windows / len(windows_BW) + context * sum(prefixes) / len(prefixes)


def _seconds(work: Any, *, clock: Clock) -> float:
    began = clock()
    work()
    return clock() - began


def _windows(rows: int, *, context: int, vocabulary: int, device: str) -> Tensor:
    windows_BW = torch.randint(vocabulary, (rows, context + 1))
    windows_BW[:, context // 2] = END_OF_TEXT
    return windows_BW.to(device)


def _border(spec: RunSpec) -> int | None:
    return END_OF_TEXT if isinstance(spec.recipe.packing, DocumentPacking) else None
