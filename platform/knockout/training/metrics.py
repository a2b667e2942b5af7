"""A run's own metric files: segments while it runs, one Parquet file when it is sealed.

The invariant: a segment is written whole, with the run that it is of, before the checkpoint of its last step. On resume
every segment beyond the checkpoint is removed, so each (metric, step) stands in the files exactly once.

Columns are made of buffers, and rows chosen in Python: Arrow's own ways, from lists and by expressions, import pandas where
it is installed, 0.3 s in each run.
"""

from __future__ import annotations

import io
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from knockout.errors import WorkspaceError
from knockout.ledger.kinds import files, is_file
from knockout.ledger.workspace import make_folder, write_atomically
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
RUN = b"knockout.run"
"""The key under which a metric file says whose it is; one of an older knockout does not."""


def whose(path: Path) -> str | None:
    """The run that a metric file says it is of; None where it does not say, or cannot be read."""
    try:
        return ((pq.read_schema(path).metadata or {}).get(RUN) or b"").decode() or None
    except (OSError, ValueError, pa.ArrowException):
        return None


class Point(NamedTuple):
    """A metric after a step."""

    step: int
    tokens: int
    """Of training, seen by then."""
    value: float


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
        make_folder(self.folder, parents=False)
        self.schema = SCHEMA.with_metadata({RUN: folder.name.encode()})
        self.tokens_per_step = tokens_per_step
        self.rows: list[tuple[int, str, float, float]] = []
        if after_step:
            _unseal(folder, after_step=after_step)
        else:
            (folder / METRICS).unlink(missing_ok=True)
        for path in reversed(segments(folder)):  # so that one that dies here leaves no gap
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
        steps_N = np.array(steps, dtype=np.int64)
        columns = [
            _numbers(steps_N),
            _numbers(steps_N * self.tokens_per_step),
            _words(names),
            *(_numbers(np.array(column, dtype=np.float64)) for column in (values, times)),
        ]
        table = pa.table(columns, schema=self.schema)
        _write(self.folder / f"{steps[-1]:010d}.parquet", table)
        self.rows.clear()


def _numbers(array_N: np.ndarray) -> pa.Array:
    """A column of numbers."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(array_N.dtype), len(array_N), [None, pa.py_buffer(array_N)])


def _words(values: Sequence[str]) -> pa.Array:
    """A column of texts."""
    texts = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))


def segments(folder: Path) -> list[Path]:
    """The segment files of a run's folder, in order of their steps."""
    return files(folder / SEGMENTS, pattern="[0-9]*.parquet")


def read_metrics(folder: Path) -> pa.Table:
    """All rows that a run has written so far, sealed or not. For any process, also while the run goes on.

    Raises:
        WorkspaceError: one of its files cannot be read.
    """
    while True:
        try:
            return _read(folder)
        except FileNotFoundError:
            continue  # the run was sealed between the listing of its segments and their reading


def series(table: pa.Table, *, metric: str) -> list[Point]:
    """The values of one metric among all rows, in order of their steps."""
    columns = (table[name].to_pylist() for name in ("metric", "step", "tokens", "value"))
    return sorted(Point(*rest) for name, *rest in zip(*columns, strict=True) if name == metric)


def evaluations(folder: Path, *, metric: str) -> tuple[tuple[int, float], ...]:
    """(training tokens seen, value) of a metric at each evaluation of a run so far, in order; empty where it has none.

    `metric` is what an evaluation measures: val_loss, generation_loss (nats per token), bits_per_byte, ….
    """
    return tuple((point.tokens, point.value) for point in series(read_metrics(folder), metric=metric))


def _read(folder: Path) -> pa.Table:
    sealed = folder / METRICS
    if is_file(sealed):
        return _load(sealed)
    tables = [_load(path) for path in segments(folder)]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def read_own(path: Path, *, run: str) -> pa.Table:
    """The rows of one metric file of a run, its checksums compared.

    Raises:
        WorkspaceError: it cannot be read, or is another run's.
    """
    table = _load(path)
    said = (table.schema.metadata or {}).get(RUN, run.encode()).decode(errors="replace")
    if said != run:
        raise WorkspaceError(f"{path} holds the metrics of run {said}")
    return table


def _load(path: Path) -> pa.Table:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if not file.schema_arrow.equals(SCHEMA):
                raise WorkspaceError(f"{path} holds no metrics")
            return file.read()
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise WorkspaceError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


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
    if is_file(sealed):
        try:
            table = read_own(sealed, run=folder.name)
        except WorkspaceError:  # then the segments, which are complete, were not yet removed
            sealed.unlink()
            return
        joined = folder / SEGMENTS / f"{after_step:010d}.parquet"
        _write(joined, table.filter(pc.field("step") <= after_step))
        for path in segments(folder):
            if path != joined:
                path.unlink()
        sealed.unlink()


def _write(path: Path, table: pa.Table) -> None:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
    write_atomically(path, data=buffer.getvalue())
