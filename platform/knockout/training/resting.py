"""A run that rests instead of training, and seals a result: what a run costs beside its training is measured with it.

The invariant: it leaves the files that a trained run leaves, with numbers that its meaning decides.
"""

from __future__ import annotations

import time
from pathlib import Path

from knockout.ledger.workspace import write_atomically
from knockout.training.metrics import MetricLog, seal_metrics
from knockout.training.result import final_metrics, write_result
from knockout.training.spec import METRICS, WEIGHTS, RunSpec, Runtime, read_spec

RUN_SECONDS = 0.1
EVALUATIONS = (2, 4)
WORSE = 0.2
"""So much larger is the loss of a stack without its residual path, in nats per token."""


def rest(folder: Path, *, runtime: Runtime) -> int:
    """In the place of a training: rest, then leave what a run leaves; the exit code."""
    time.sleep(RUN_SECONDS)
    seal(read_spec(folder), folder=folder)
    return 0


def seal(spec: RunSpec, *, folder: Path) -> dict[str, float]:
    """Write what a run leaves: metrics at its evaluations, weights, the result; the final metrics."""
    apart = WORSE * (spec.architecture.residual.kind == "none")
    loss = 3.0 + apart + 0.01 * (spec.seed * 7919 % 101 - 50) / 50
    log = MetricLog(folder, after_step=0, tokens_per_step=spec.tokens_per_step)
    final = {"val_loss": loss, "bits_per_byte": loss}
    for step in EVALUATIONS:
        above = 1.0 / step - 1.0 / EVALUATIONS[-1]
        cost = {"tokens_per_second": 1e4, "peak_memory_bytes": 1e6}
        log.add(step, {"train_loss": loss + above, **{name: value + 0.5 * above for name, value in final.items()}, **cost})
    log.flush()
    metrics = final_metrics(seal_metrics(folder), evaluation=final)
    write_atomically(folder / WEIGHTS, data=b"no weights")
    result = {
        "outcome": "done", "reason": None, "step": spec.num_steps, "planned_steps": spec.num_steps,
        "metrics": metrics, "seconds": RUN_SECONDS, "timing": None,
    }  # fmt: skip
    write_result(folder, result=result, files=(METRICS, WEIGHTS))
    return metrics
