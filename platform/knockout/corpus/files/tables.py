"""Parquet and Arrow: a column of text, and the columns that rows are chosen by.

The invariant: only the columns that are asked for are read, a few rows at a time, and a column that does not hold text is
refused with its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from knockout.corpus.files.filters import Filter, asked, make_filter, series_of
from knockout.corpus.files.outcomes import Document, Fault, Skipped, no_column, refusal, skips
from knockout.corpus.files.stores import Stored, first_bytes, open_file, open_slice, reading
from knockout.corpus.text import normalise
from knockout.declare.conditions import Compared
from knockout.declare.text_sources import Files, HuggingFace
from knockout.errors import CorpusError

if TYPE_CHECKING:
    import polars as pl

ROWS = 1024
"""Rows that are read at a time."""
ARROW_FILE = b"ARROW1"
"""First bytes of Arrow's file format; what begins otherwise is a stream."""
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""How an Arrow stream ends (Arrow columnar format, "IPC Streaming Format")."""

Table = Files | HuggingFace


def parquet_groups(source: Table, *, file: Stored) -> list[int]:
    """About how many bytes of text, before compression, each row group of a Parquet file holds."""
    with _parquet(file) as opened:
        _check_columns(opened.schema_arrow, source=source, address=file.address)
        groups = [opened.metadata.row_group(index) for index in range(opened.metadata.num_row_groups)]
        return [_size(group, column=source.column) for group in groups]


def arrow_batches(source: Table, *, file: Stored) -> list[int]:
    """About how many bytes each batch of an Arrow file holds; a stream is one batch."""
    with _arrow(file) as opened:
        _check_columns(opened.schema, source=source, address=file.address)
        count = opened.num_record_batches if isinstance(opened, pa.ipc.RecordBatchFileReader) else 1
        return [file.size // count] * count if count else []


def read_parquet(source: Table, *, file: Stored, first: int, last: int) -> Iterator[Document | Skipped]:
    """The documents of the row groups from `first` to before `last`."""
    with _parquet(file) as opened:
        columns = _check_columns(opened.schema_arrow, source=source, address=file.address)
        groups = list(range(first, last))
        batches = opened.iter_batches(batch_size=ROWS, row_groups=groups, columns=list(columns), use_threads=False)
        rows = _Rows(source, file.address, lambda: sum(opened.metadata.row_group(index).num_rows for index in range(first)))
        yield from rows.documents(batches)


def read_arrow(source: Table, *, file: Stored, first: int, last: int) -> Iterator[Document | Skipped]:
    """The documents of the batches from `first` to before `last`; a stream is one batch."""
    with _arrow(file) as opened:
        columns = _check_columns(opened.schema, source=source, address=file.address)
    fields = sorted(opened.schema.get_field_index(name) for name in columns)
    with _arrow(file, options=pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)) as opened:
        if isinstance(opened, pa.ipc.RecordBatchFileReader):
            rows = _Rows(source, file.address, lambda: sum(opened.get_batch(index).num_rows for index in range(first)))
            yield from rows.documents(opened.get_batch(index) for index in range(first, last))
        else:
            yield from _Rows(source, file.address, lambda: 0).documents(iter(opened))


@contextmanager
def _parquet(file: Stored) -> Iterator[pq.ParquetFile]:
    with _readable(file, kind="Parquet") as opened, pq.ParquetFile(opened, page_checksum_verification=True) as parquet:
        yield parquet


@contextmanager
def _arrow(
    file: Stored, *, options: pa.ipc.IpcReadOptions | None = None
) -> Iterator[pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader]:
    is_file = first_bytes(file, count=len(ARROW_FILE)) == ARROW_FILE
    with _readable(file, kind="Arrow") as opened:
        if is_file:
            yield pa.ipc.open_file(opened, options=options)
            return
        with open_slice(file, first=max(0, file.size - len(END_OF_STREAM)), last=file.size) as end:
            if end.read() != END_OF_STREAM:
                raise CorpusError(f"{file.address}: not a whole Arrow file or stream: its end is missing")
        yield pa.ipc.open_stream(opened, options=options)


@contextmanager
def _readable(file: Stored, *, kind: str) -> Iterator[BinaryIO]:
    if not file.is_sliceable:
        raise CorpusError(f"{file.address}: {kind} is read in pieces, which its web server does not give; download it first")
    try:
        with reading(file.address), open_file(file) as opened:
            yield opened
    except pa.ArrowException as error:
        raise CorpusError(f"{file.address}: not a readable {kind} file ({error})") from None


def _size(group: pq.RowGroupMetaData, *, column: str) -> int:
    parts = [group.column(index) for index in range(group.num_columns)]
    return sum(part.total_uncompressed_size for part in parts if part.path_in_schema == column)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Batches to documents; says where a row stands only when that is asked for."""

    source: Table
    address: str
    rows_before: Callable[[], int]

    def documents(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Document | Skipped]:
        kept = make_filter(self.source.where)
        row = 0
        for batch in batches:
            mask = np.ones(batch.num_rows, bool) if kept is None else self.mask(batch, kept=kept)
            texts = _values(batch.column(self.source.column), pa.large_binary())
            for index, is_kept in enumerate(mask.tolist()):
                yield self.document(texts[index].as_py(), row=row + index + 1) if is_kept else Skipped("filtered")
            row += batch.num_rows

    def mask(self, batch: pa.RecordBatch, *, kept: Filter) -> np.ndarray:
        return kept.mask({name: self.series(batch, name, compared) for name, compared in kept.columns.items()})

    def series(self, batch: pa.RecordBatch, name: str, compared: Compared) -> pl.Series:
        column = batch.column(name)
        if compared == "any":
            return series_of(column.is_valid().to_pylist(), compared="boolean").replace(False, None)
        values = _values(column, ARROW_TYPES[compared])
        try:
            values.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CorpusError(f"{self.address}: column '{name}' holds what is not UTF-8 text ({error})") from None
        return series_of(values, compared=compared)

    def document(self, value: bytes | None, *, row: int) -> Document | Skipped:
        try:
            return normalise(value or b"", form=self.source.unicode) or Skipped("empty")
        except UnicodeDecodeError as error:
            fault = Fault("undecodable", f"byte {error.start} is not UTF-8 text ({error.reason})")
        if not skips(self.source, fault=fault):
            raise refusal(fault, where=f"{self.address}: row {self.rows_before() + row}")
        return Skipped(fault.kind)


ARROW_TYPES: dict[Compared, pa.DataType] = {"text": pa.large_string(), "number": pa.float64(), "boolean": pa.bool_()}


def _values(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    return plain.cast(wanted, safe=False)


def _check_columns(schema: pa.Schema, *, source: Table, address: str) -> tuple[str, ...]:
    """The columns to be read, each there and of the type that is asked for."""
    kept = make_filter(source.where)
    columns: dict[str, Compared] = dict(kept.columns) if kept is not None else {}
    for column, compared in [(source.column, "text"), *columns.items()]:
        if schema.names.count(column) != 1:
            if column in schema.names:
                raise CorpusError(f"{address}: there are several columns '{column}'")
            raise no_column(column, columns=schema.names, where=address)
        kind = schema.field(column).type
        if not HOLDS[compared](kind.value_type if pa.types.is_dictionary(kind) else kind):
            needed = {"text": "text", "number": "a number", "boolean": "true or false"}[compared]
            why = asked(source.where, column=column, compared=compared) if column in columns else ""
            found = "text" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else kind
            raise CorpusError(f"{address}: column '{column}' must be {needed}, found {found}{why}")
    return tuple({source.column: None, **dict.fromkeys(columns)})


def _is_text(kind: pa.DataType) -> bool:
    strings = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    bytes_ = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(test(kind) for test in (*strings, *bytes_))


def _is_number(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))


HOLDS: dict[Compared, Callable[[pa.DataType], bool]] = {
    "text": _is_text,
    "number": _is_number,
    "boolean": pa.types.is_boolean,
    "any": lambda kind: True,
}
"""Which Arrow types hold what is asked for."""
