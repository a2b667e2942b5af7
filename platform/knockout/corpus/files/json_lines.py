"""JSON lines: one object a line, one of whose fields holds a document's text.

The invariant: a record ends at a line feed and nowhere else, is JSON in UTF-8 with each key once, and is never repaired.
What is JSON does not depend on the interpreter: a number may have any number of digits, and is the nearest 64-bit float; the
one limit is that of nesting (RFC 8259, section 9, allows it).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from knockout.corpus.files.compression import compression_of, open_text
from knockout.corpus.files.filters import Filter, asked, make_filter, series_of
from knockout.corpus.files.outcomes import Document, Fault, Skipped, no_column, refusal, skips
from knockout.corpus.files.stores import BLOCK_BYTES, Stored, open_slice, reading
from knockout.corpus.text import BOM, tidy
from knockout.declare.conditions import Compared
from knockout.declare.text_sources import Files

GROUP_RECORDS = 1024
GROUP_BYTES = 2**22
"""Records, and bytes of them, that are filtered at a time."""
MAX_NESTING = 500
"""Lists and objects of a record inside each other; half of what every Python reads."""
PLAIN_TYPES: dict[Compared, type] = {"text": str, "number": float, "boolean": bool}


def read_whole(source: Files, *, file: Stored) -> Iterator[Document | Skipped]:
    """The documents of one file, which may be compressed.

    Raises:
        CorpusError: the file cannot be read or decompressed, or a record is wrong and may not be skipped.
    """
    with open_text(file, compression=compression_of(file)) as opened:
        yield from _Reader(source, file.address, lambda: 0).documents(opened)


def read_slice(source: Files, *, file: Stored, first: int, last: int) -> Iterator[Document | Skipped]:
    """The documents of a file from one cut to the next."""
    with reading(file.address), open_slice(file, first=first, last=last) as opened:
        yield from _Reader(source, file.address, partial(_count_lines, file, until=first)).documents(opened)


def cuts(file: BinaryIO, *, size: int, chunk_bytes: int) -> Iterator[int]:
    """Where a file may be cut, about every `chunk_bytes`: right after line feeds."""
    at = chunk_bytes
    while at < size:
        file.seek(at)
        at += _bytes_of_line(file)
        if at < size:
            yield at
        at += chunk_bytes


def _bytes_of_line(file: BinaryIO) -> int:
    passed = 0
    while block := file.read(BLOCK_BYTES // 16):
        if (found := block.find(b"\n")) >= 0:
            return passed + found + 1
        passed += len(block)
    return passed


class _Object(list[tuple[str, Any]]):
    """A JSON object's keys and values, as they were written."""


DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_int=float)
NAMES = {
    _Object: "an object",
    list: "a list",
    str: "text",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


@dataclass(frozen=True)
class _Record:
    line: int
    fields: dict[str, Any]
    """The values of the columns that are needed."""


@dataclass(frozen=True, eq=False)
class _Reader:
    """Lines to documents; says where a line stands only when that is asked for."""

    source: Files
    address: str
    lines_before: Callable[[], int]

    def documents(self, opened: BinaryIO) -> Iterator[Document | Skipped]:
        kept = make_filter(self.source.where)
        needed = (self.source.column, *(kept.columns if kept is not None else ()))
        for group in _groups(opened):
            records: list[_Record] = []
            for line, text in group:
                found = self.record(text, line=line, needed=needed)
                if isinstance(found, Skipped):
                    yield found
                else:
                    records.append(found)
            if kept is not None:
                records, sound = [], records
                yield from self.chosen(sound, kept=kept, into=records)
            yield from map(self.document, records)

    def record(self, text: bytes, *, line: int, needed: tuple[str, ...]) -> _Record | Skipped:
        try:
            found = _parse(text)
            keys = [key for key, _ in found]
            for column in needed:
                if column not in keys:
                    raise no_column(column, columns=keys, where=self.where(line))
                if keys.count(column) > 1:
                    raise Fault("malformed", f"the key '{column}' is written {keys.count(column)} times")
        except Fault as fault:
            return self.skipped(fault, line=line)
        return _Record(line, {key: value for key, value in found if key in needed})

    def chosen(self, records: list[_Record], *, kept: Filter, into: list[_Record]) -> Iterator[Skipped]:
        """Put the records that meet the condition into `into`; the others, and those of a wrong type, are skipped."""
        sound: list[_Record] = []
        why = {name: asked(self.source.where, column=name, compared=compared) for name, compared in kept.columns.items()}
        for record in records:
            try:
                for column, compared in kept.columns.items():
                    _check_type(record.fields[column], column=column, compared=compared, why=why[column])
            except Fault as fault:
                yield self.skipped(fault, line=record.line)
            else:
                sound.append(record)
        columns = {
            column: series_of([record.fields[column] for record in sound], compared=compared)
            for column, compared in kept.columns.items()
        }
        for record, is_kept in zip(sound, kept.mask(columns), strict=True):
            if is_kept:
                into.append(record)
            else:
                yield Skipped("filtered")

    def document(self, record: _Record) -> Document | Skipped:
        column = self.source.column
        try:
            value = record.fields[column]
            _check_type(value, column=column, compared="text")
            return tidy((value or "").encode(), form=self.source.unicode) or Skipped("empty")
        except UnicodeEncodeError as error:
            reason = f"character {error.start} of '{column}' is a lone surrogate, not Unicode text"
            return self.skipped(Fault("undecodable", reason), line=record.line)
        except Fault as fault:
            return self.skipped(fault, line=record.line)

    def skipped(self, fault: Fault, *, line: int) -> Skipped:
        if not skips(self.source, fault=fault):
            raise refusal(fault, where=self.where(line))
        return Skipped(fault.kind)

    def where(self, line: int) -> str:
        return f"{self.address}: line {self.lines_before() + line}"


def _parse(text: bytes) -> _Object:
    try:
        found = DECODER.decode(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise Fault("undecodable", f"byte {error.start} is not UTF-8 text ({error.reason})") from None
    except ValueError as error:
        raise Fault("malformed", f"not a JSON record ({error})") from None
    except RecursionError:
        raise _too_deep() from None
    if not isinstance(found, _Object):
        raise Fault("malformed", f"a record must be an object, found {_named(found)}")
    if text.count(b"[") + text.count(b"{") > MAX_NESTING and not _is_shallow(found):
        raise _too_deep()
    return found


def _is_shallow(record: _Object) -> bool:
    """Whether a record is nested no deeper than is allowed, gone through level by level."""
    level: list[Any] = [record]
    for _ in range(MAX_NESTING):
        inside = (item[1] if type(within) is _Object else item for within in level for item in within)
        level = [item for item in inside if isinstance(item, list)]
        if not level:
            return True
    return False


def _too_deep() -> Fault:
    return Fault("malformed", f"more than {MAX_NESTING} lists and objects are nested in each other")


def _check_type(value: Any, *, column: str, compared: Compared, why: str = "") -> None:
    if value is None or compared == "any":
        return
    if not isinstance(value, PLAIN_TYPES[compared]):
        wanted = {"text": "text", "number": "a number", "boolean": "true or false"}[compared]
        raise Fault("malformed", f"column '{column}' must be {wanted}, found {_named(value)}{why}")


def _named(value: Any) -> str:
    return NAMES[type(value)]


def _count_lines(file: Stored, *, until: int) -> int:
    lines = 0
    with reading(file.address), open_slice(file, first=0, last=until) as opened:
        while block := opened.read(BLOCK_BYTES):
            lines += block.count(b"\n")
    return lines


def _groups(opened: BinaryIO) -> Iterator[list[tuple[int, bytes]]]:
    group: list[tuple[int, bytes]] = []
    size = 0
    for number, line in enumerate(opened, start=1):
        if line := line.removeprefix(BOM).strip(b" \t\r\n"):
            group.append((number, line))
            size += len(line)
        if size >= GROUP_BYTES or len(group) >= GROUP_RECORDS:
            yield group
            group, size = [], 0
    if group:
        yield group
