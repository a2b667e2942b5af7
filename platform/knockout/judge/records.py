"""What the judge and the report know of a run.

The invariant: a record describes one run of one cell; only a done or diverged run is a result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from knockout.declare.claim import BASELINE
from knockout.declare.metric import CHEATED, LOSSES

RESULTS = ("done", "diverged")


@dataclass(frozen=True)
class RunRecord:
    """One run: what it is, how it ended, what it measured and what it cost.

    `metrics` holds final values: train_loss, val_loss, generation_loss in nats per token, bits_per_byte, and where they
    were measured peak_memory_bytes, tokens_per_second, routing_entropy; generation_loss at least for a model that sees the
    future. `flops` counts the whole run. `parameters` counts
    by part, with `total`.
    """

    identity: str
    variant: str
    size: str
    seed: int
    state: str
    reason: str | None
    reused: bool
    folder: Path
    step: int
    planned_steps: int
    metrics: Mapping[str, float]
    causal: bool
    seconds: float
    tokens: int
    flops: float
    parameters: Mapping[str, int]

    @property
    def label(self) -> str:
        """The run in words, as it is named everywhere: `no-residual · nano · s3`."""
        return f"{self.variant} · {self.size} · s{self.seed}"


def final_value(record: RunRecord, *, metric: str) -> float | None:
    """A result's final value; None where there is none. A loss that diverged or is not finite is infinite: the worst.

    For a causal model the loss of each token from its prefix alone is what val_loss measures; it stands in where the
    run recorded no generation_loss of its own, which is taken over fewer tokens.
    """
    if record.state not in RESULTS:
        return None
    if metric not in LOSSES:
        return _measured(record, metric=metric)
    if record.state == "diverged":
        return math.inf
    value = record.metrics.get(metric)
    if value is None and metric == "generation_loss" and record.causal:
        value = record.metrics.get("val_loss")
    if value is None:
        return None
    return value if math.isfinite(value) else math.inf


def _measured(record: RunRecord, *, metric: str) -> float | None:
    """What is no loss, as it was measured: itself, or else the mean over the layers that have it (`metric/block.03`)."""
    layers = [value for name, value in record.metrics.items() if name.startswith(f"{metric}/")]
    value = record.metrics.get(metric, sum(layers) / len(layers) if layers else math.nan)
    return value if math.isfinite(value) else None


def fitting(metric: str, *, runs: Iterable[RunRecord]) -> str:
    """The metric on which runs can be compared: generation_loss where one of them sees the future on this one."""
    return "generation_loss" if metric in CHEATED and any(not run.causal for run in runs) else metric


def of_cell(records: Iterable[RunRecord], *, variant: str, size: str) -> dict[int, RunRecord]:
    """The runs of a cell by seed; where a seed has several, one with a result is taken."""
    cell: dict[int, RunRecord] = {}
    for record in records:
        if record.variant != variant or record.size != size:
            continue
        if record.seed not in cell or cell[record.seed].state not in RESULTS:
            cell[record.seed] = record
    return dict(sorted(cell.items()))


def variants_of(records: Sequence[RunRecord]) -> list[str]:
    """The variants in order of first appearance, the baseline first."""
    names = dict.fromkeys(record.variant for record in records)
    return [name for name in (BASELINE,) if name in names] + [name for name in names if name != BASELINE]


def sizes_of(records: Sequence[RunRecord]) -> list[str]:
    """The sizes in order of first appearance."""
    return list(dict.fromkeys(record.size for record in records))
