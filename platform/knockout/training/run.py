"""One run: read the spec, go on from the newest checkpoint, train, and seal the result.

The invariant: `result.json` is written last, after weights and metrics, and only by a run that took its planned steps or
diverged. Whoever finds it may trust what lies beside it.
"""

from __future__ import annotations

import logging
import os
import platform
import time
import warnings
from importlib import metadata
from pathlib import Path

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from torch import nn

from knockout.corpus.reading import Split, open_split
from knockout.ledger.workspace import write_atomically
from knockout.model import build
from knockout.model.kernels import kernels
from knockout.training.checkpoints import newest_checkpoint, remove_checkpoints, to_bytes
from knockout.training.data import StepBatches
from knockout.training.evaluation import Exam, evaluate
from knockout.training.metrics import MetricLog, seal_metrics
from knockout.training.module import Diverged, LanguageModule
from knockout.training.recorder import Recorder, Stopped
from knockout.training.result import FINAL_STEPS, mean_of_last, write_result
from knockout.training.spec import METRICS, WEIGHTS, RunSpec, Runtime, read_spec

EXIT_STOPPED = 143

log = logging.getLogger(__name__)


def train(folder: Path, *, runtime: Runtime) -> int:
    """Train the run in `folder` to its sealed result.

    Returns:
        The exit code: 0 with a sealed result, 143 when it was asked to stop and left a checkpoint.
    """
    _quiet_lightning()
    spec = read_spec(folder)
    torch.set_num_threads(runtime.threads)
    started = time.monotonic()
    train_split, exam_split = (open_split(Path(runtime.corpus), split=name) for name in ("train", spec.evaluation["split"]))
    exam = Exam.of(exam_split, context=spec.architecture.context, device=runtime.device)
    network = build(spec.architecture, seed=spec.seed, device=runtime.device)
    checkpoint = newest_checkpoint(folder) or {"step": 0}
    step = int(checkpoint["step"])
    if step:
        network.load_state_dict(checkpoint["network"])
    metrics = MetricLog(folder, after_step=step, tokens_per_step=spec.tokens_per_step)
    module = LanguageModule(network, spec=spec, step=step, optimizer_state=checkpoint.get("optimizer"))
    recorder = Recorder(spec=spec, runtime=runtime, exam=exam, metrics=metrics)
    diverged = _fit(module, recorder=recorder, split=train_split)
    if isinstance(diverged, Stopped):
        return EXIT_STOPPED
    metrics.flush()
    final = recorder.final or evaluate(network, exam=exam, causal=spec.architecture.causal)
    _seal(spec, network=network, final=final, diverged=diverged, seconds=time.monotonic() - started, runtime=runtime)
    return 0


def _fit(module: LanguageModule, *, recorder: Recorder, split: Split) -> Diverged | Stopped | None:
    """Train from the module's step to the last one; how it ended early, or None."""
    spec, runtime = recorder.spec, recorder.runtime
    if module.step >= spec.num_steps:
        return None
    if spec.recipe.compile:
        module.network.compile()
    trainer = _trainer(spec, recorder=recorder, steps=spec.num_steps - module.step)
    recorder.heed_sigterm()
    try:
        trainer.fit(module, train_dataloaders=StepBatches(split, spec=spec, start=module.step, device=runtime.device))
    except (Diverged, Stopped) as ending:
        return ending
    return None


def _trainer(spec: RunSpec, *, recorder: Recorder, steps: int) -> pl.Trainer:
    return pl.Trainer(
        accelerator="gpu" if recorder.runtime.device == "cuda" else "cpu",
        devices=1,
        precision="bf16-mixed" if spec.recipe.precision == "bf16" else "32-true",
        max_steps=steps,
        max_epochs=-1,
        accumulate_grad_batches=spec.recipe.accumulate,
        callbacks=[recorder],
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


def _seal(
    spec: RunSpec,
    *,
    network: nn.Module,
    final: dict[str, float],
    diverged: Diverged | None,
    seconds: float,
    runtime: Runtime,
) -> None:
    """Weights, then metrics, then the result that names both by their digests."""
    table = seal_metrics(spec.folder)
    measured = {} if diverged else {**final, "train_loss": mean_of_last(table, metric="train_loss", count=FINAL_STEPS)}
    write_atomically(spec.folder / WEIGHTS, data=to_bytes({"network": network.state_dict()}))
    result = {
        "outcome": "diverged" if diverged else "done",
        "reason": str(diverged) if diverged else None,
        "step": diverged.step if diverged else spec.num_steps,
        "planned_steps": spec.num_steps,
        "metrics": measured,
        "seconds": seconds,
        "device": runtime.device,
        "threads": runtime.threads,
        "kernels": kernels(device=runtime.device),
        "versions": _versions(),
    }
    write_result(spec.folder, result=result, files=(METRICS, WEIGHTS))
    if diverged is None:
        remove_checkpoints(spec.folder)


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "pytorch-lightning": metadata.version("pytorch-lightning"),
    }


def _quiet_lightning() -> None:
    """Lightning's advice about loaders and hardware does not apply: the data has no workers, and the device is chosen."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    os.environ["PL_DISABLE_FORK"] = "1"
    warnings.filterwarnings("ignore", module=r"pytorch_lightning\..*")
