"""A run's own metric files: segments while it runs, one Parquet file when it is sealed.

The invariant: a segment is written whole, before the checkpoint of its last step. On resume every segment beyond the
checkpoint is removed, so each (metric, step) stands in the files exactly once.
"""

from __future__ import annotations

import io
import time
from abc import ABC, abstractmethod
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from knockout.ledger.workspace import write_atomically
from knockout.training.spec import METRICS, SEGMENTS

SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("tokens", pa.int64()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("time", pa.float64()),
    ]
)


class Metrics(ABC):
    """What takes the metrics of a run's steps."""

    @abstractmethod
    def add(self, step: int, values: dict[str, float]) -> None:
        """Record values of the step that ends after `step` optimizer steps."""

    @abstractmethod
    def flush(self) -> None:
        """Write what was collected as one segment."""


class Unrecorded(Metrics):
    """For a rank that is not the first: another process writes the same."""

    def add(self, step: int, values: dict[str, float]) -> None:
        """See Metrics."""

    def flush(self) -> None:
        """See Metrics."""


class MetricLog(Metrics):
    """Collects rows in memory and writes them as segments named after their last step."""

    def __init__(self, folder: Path, *, after_step: int, tokens_per_step: int) -> None:
        self.folder = folder / SEGMENTS
        self.folder.mkdir(exist_ok=True)
        self.tokens_per_step = tokens_per_step
        self.rows: list[tuple[int, str, float, float]] = []
        if after_step:
            _unseal(folder, after_step=after_step)
        else:
            (folder / METRICS).unlink(missing_ok=True)
        for path in segments(folder):
            if int(path.stem) > after_step:
                path.unlink()

    def add(self, step: int, values: dict[str, float]) -> None:
        """See Metrics."""
        now = time.time()
        self.rows.extend((step, metric, value, now) for metric, value in values.items())

    def flush(self) -> None:
        """See Metrics."""
        if not self.rows:
            return
        steps, names, values, times = zip(*self.rows, strict=True)
        tokens = [step * self.tokens_per_step for step in steps]
        table = pa.table([steps, tokens, names, values, times], schema=SCHEMA)
        _write(self.folder / f"{steps[-1]:010d}.parquet", table)
        self.rows.clear()


def segments(folder: Path) -> list[Path]:
    """The segment files of a run's folder, in order of their steps."""
    return sorted((folder / SEGMENTS).glob("[0-9]*.parquet"))


def read_metrics(folder: Path) -> pa.Table:
    """All rows that a run has written so far, sealed or not. For any process, also while the run goes on."""
    while True:
        try:
            return _read(folder)
        except FileNotFoundError:
            continue  # the run was sealed between the listing of its segments and their reading


def evaluations(folder: Path, *, metric: str) -> tuple[tuple[int, float], ...]:
    """(training tokens seen, value) of a metric at each evaluation of a run so far, in order; empty where it has none.

    `metric` is what an evaluation measures: val_loss, generation_loss (nats per token), bits_per_byte, ….
    """
    rows = read_metrics(folder).filter(pc.field("metric") == metric).sort_by("step")
    return tuple(zip(rows["tokens"].to_pylist(), rows["value"].to_pylist(), strict=True))


def _read(folder: Path) -> pa.Table:
    sealed = folder / METRICS
    if sealed.exists():
        return pq.read_table(sealed, schema=SCHEMA)
    tables = [pq.read_table(path, schema=SCHEMA) for path in segments(folder)]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def seal_metrics(folder: Path) -> pa.Table:
    """Join the segments into the run's one metric file, and remove them."""
    table = read_metrics(folder)
    _write(folder / METRICS, table)
    for path in segments(folder):
        path.unlink()
    return table


def _unseal(folder: Path, *, after_step: int) -> None:
    """Take back the metric file of a run that died before its result was written."""
    sealed = folder / METRICS
    if sealed.exists():
        table = pq.read_table(sealed, schema=SCHEMA)
        joined = folder / SEGMENTS / f"{after_step:010d}.parquet"
        _write(joined, table.filter(pc.field("step") <= after_step))
        for path in segments(folder):
            if path != joined:
                path.unlink()
        sealed.unlink()


def _write(path: Path, table: pa.Table) -> None:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    write_atomically(path, data=buffer.getvalue())
