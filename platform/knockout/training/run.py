"""One run: read the spec, go on from the newest checkpoint, train, and seal the result.

The invariant: `result.json` is written last, after weights and metrics, and only by a run that took its planned steps or
diverged, and has the metrics of each. Whoever finds it may trust what lies beside it.
"""

from __future__ import annotations

import logging
import platform
import time
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import torch
from torch import Tensor

from knockout.corpus.overlap import check_disjoint
from knockout.corpus.reading import Split, open_split
from knockout.errors import RunError
from knockout.ledger.workspace import write_atomically
from knockout.model import build
from knockout.model.kernels import kernels
from knockout.training.checkpoints import to_bytes
from knockout.training.covering import find_gap
from knockout.training.data import StepBatches, border
from knockout.training.evaluation import Exam, evaluate
from knockout.training.memory import peak_memory
from knockout.training.metrics import MetricLog, Metrics, Unrecorded, seal_metrics
from knockout.training.module import Diverged, LanguageModule
from knockout.training.ranks import ALONE, Ranks
from knockout.training.recorder import Recorder, Stopped
from knockout.training.result import final_metrics, remove_checkpoints, write_result
from knockout.training.spec import EXIT_STOPPED, METRICS, WEIGHTS, RunSpec, Runtime, read_spec
from knockout.training.starting import Start, begin, find_start
from knockout.training.timing import Stopwatch, Timing, clock
from knockout.training.trainer import make_trainer, quiet_lightning

log = logging.getLogger(__name__)


def train(folder: Path, *, runtime: Runtime, ranks: Ranks = ALONE) -> int:
    """Train the run in `folder` to its sealed result; where it has several ranks, each of them calls this.

    Returns:
        The exit code: 0 with a sealed result, 143 when it was asked to stop and left a checkpoint.
    """
    quiet_lightning()
    spec = read_spec(folder)
    torch.set_num_threads(runtime.threads)
    started, stopwatch = time.monotonic(), Stopwatch(clock(runtime))
    train_split, exam_split = (open_split(Path(runtime.corpus), split=name) for name in ("train", spec.evaluation["split"]))
    check_disjoint(train_split, exam_split)
    context, shuffled = spec.architecture.context, spec.recipe.shuffle_tokens
    packing, end_of_text = spec.recipe.packing, border(spec.recipe.packing, manifest=train_split.manifest)
    exam = Exam.of(exam_split, context=context, device=runtime.device, shuffled=shuffled, packing=packing)
    network = build(spec.architecture, seed=spec.seed, device=runtime.device)
    start = find_start(folder, network=network)
    step = start.step
    if step:
        network.load_state_dict(start.state["network"])
    if (newest := ranks.most([step])) != [step]:
        raise RunError(f"{folder}: rank {ranks.rank} goes on from step {step}, and another from step {newest[0]}")
    metrics = _metrics(spec, start=start, ranks=ranks)
    state = {"step": step, "optimizer_state": start.state.get("optimizer")}
    memory = peak_memory(device=runtime.device)
    module = LanguageModule(network, spec=spec, **state, memory=memory, ranks=ranks, end_of_text=end_of_text)
    recorder = Recorder(spec=spec, runtime=runtime, exam=exam, metrics=metrics, stopwatch=stopwatch, ranks=ranks)
    diverged = _fit(module, recorder=recorder, split=train_split)
    if isinstance(diverged, Stopped):
        return EXIT_STOPPED
    metrics.flush()
    weights = ranks.whole_state(network.state_dict())
    if not ranks.is_first:
        return 0
    _seal(
        spec,
        weights=weights,
        final=recorder.final or evaluate(network, exam=exam, causal=spec.architecture.causal),
        diverged=diverged,
        seconds=time.monotonic() - started,
        timing=stopwatch.timing(num_steps=module.step - step) if ranks.size == 1 else None,
        runtime=runtime,
    )
    return 0


def _metrics(spec: RunSpec, *, start: Start, ranks: Ranks) -> Metrics:
    """What the run goes on with, once all ranks have read what they go on from."""
    if not ranks.is_first:
        return Unrecorded()
    begin(spec.folder, start=start)
    return MetricLog(spec.folder, after_step=start.step, tokens_per_step=spec.tokens_per_step)


def _fit(module: LanguageModule, *, recorder: Recorder, split: Split) -> Diverged | Stopped | None:
    """Train from the module's step to the last one; how it ended early, or None."""
    spec, runtime = recorder.spec, recorder.runtime
    if module.step >= spec.num_steps:
        return None
    if spec.recipe.compile:
        module.network.compile()
    steps = spec.num_steps - module.step
    trainer = make_trainer(spec, callback=recorder, runtime=runtime, steps=steps, ranks=recorder.ranks)
    recorder.heed_sigterm()
    try:
        trainer.fit(module, train_dataloaders=StepBatches(split, spec=spec, start=module.step, device=runtime.device))
    except (Diverged, Stopped) as ending:
        return ending
    return None


def _seal(
    spec: RunSpec,
    *,
    weights: dict[str, Tensor],
    final: dict[str, float],
    diverged: Diverged | None,
    seconds: float,
    timing: Timing | None,
    runtime: Runtime,
) -> None:
    """Weights, then metrics, then the result that names both by their digests."""
    last = diverged.step - 1 if diverged else spec.num_steps
    table = seal_metrics(spec.folder)
    if (missing := find_gap(table["step"].to_pylist(), wanted=range(1, last + 1))) is not None:
        raise RunError(f"{spec.folder} has lost the metrics of {missing} while the run was trained")
    measured = {} if diverged else final_metrics(table, evaluation=final)
    write_atomically(spec.folder / WEIGHTS, data=to_bytes({"network": weights}))
    result = {
        "outcome": "diverged" if diverged else "done",
        "reason": str(diverged) if diverged else None,
        "step": diverged.step if diverged else spec.num_steps,
        "planned_steps": spec.num_steps,
        "metrics": measured,
        "seconds": seconds,
        "timing": asdict(timing) if timing is not None else None,
        "device": runtime.device,
        "devices": runtime.devices,
        "strategy": runtime.strategy if runtime.devices > 1 else None,
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
