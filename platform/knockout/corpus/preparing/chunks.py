"""A source cut into chunks, each of which can be read alone, in any order, by any process.

The invariant: the chunks of a source give each of its documents exactly once, and a chunk's fingerprints change whenever
one byte of its files does: they are hashes of content, never of names or times.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from knockout.corpus.files import json_lines, plain_text, tables
from knockout.corpus.files.addresses import beside, find_files, library, resolved
from knockout.corpus.files.compression import compression_of
from knockout.corpus.files.formats import with_format
from knockout.corpus.files.outcomes import Document, Skipped, within
from knockout.corpus.files.passing_over import Reason
from knockout.corpus.files.stores import (
    Stored,
    fingerprint,
    is_checkable,
    known_fingerprint,
    open_file,
    reading,
    scheme_of,
    stored,
)
from knockout.corpus.generators.generated import generate
from knockout.declare.corpus import Source
from knockout.declare.text_sources import Files, HuggingFace, Mixture, PythonSource, TextSource
from knockout.errors import CorpusError

PASSED_OVER: dict[str, Reason] = {
    "hidden_files": "hidden",
    "files_in_another_case": "in another case",
    "broken_links": "a link to nothing",
}
CHUNK_BYTES = 16 * 2**20
"""Raw bytes of a chunk: what one process reads at a time. Smaller files are read together."""


@dataclass(frozen=True)
class Part:
    """A piece of one file, or a generator's documents."""

    address: str
    """URL, or path, seen from the declaration's folder where it lies in it; empty for a generator."""
    first: int
    last: int
    """Bytes of text and JSON lines, row groups of Parquet, batches of Arrow, documents of a generator: to before last."""
    sha256: str
    """In hex: of the bytes from first to last where text or JSON lines are cut, else of the whole file, or of what its store
    says of its content; of a generator's declaration."""


@dataclass(frozen=True)
class Chunk:
    """What one task reads: a piece of one large file, or several small files."""

    source: int
    """Index in the declaration's list of sources; 0 where there is one."""
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class _Planned:
    part: Part
    num_bytes: int


def chunks_of(source: Source, *, base: Path, chunk_bytes: int = CHUNK_BYTES) -> tuple[Chunk, ...]:
    """Plan the reading of a source; local files are read once, for their fingerprints.

    Raises:
        CorpusError: nothing matches, a file cannot be read, or a column is not there.
    """
    match source:
        case Mixture():
            found: list[Chunk] = []
            for index, share in enumerate(source.sources):
                with within(share.name):
                    found += _chunks(share.source, index, base=base, chunk_bytes=chunk_bytes)
            return tuple(found)
        case PythonSource() | Files() | HuggingFace():
            return tuple(_chunks(source, 0, base=base, chunk_bytes=chunk_bytes))
        case _:
            declared = hashlib.sha256(source.model_dump_json().encode()).hexdigest()
            return (Chunk(0, (Part("", 0, source.documents, declared),)),)


def with_formats(source: Source, *, chunks: Sequence[Chunk]) -> Source:
    """The source with the format of its files where it does not say it, as they were found."""
    names = {chunk.source: chunk.parts[0].address for chunk in reversed(chunks)}
    match source:
        case Mixture(sources=shares):
            found = [with_format(share.source, name=names.get(index)) for index, share in enumerate(shares)]
            known = (share.model_copy(update={"source": one}) for share, one in zip(shares, found, strict=True))
            return source.model_copy(update={"sources": tuple(known)})
        case PythonSource() | Files() | HuggingFace():
            return with_format(source, name=names.get(0))
        case _:
            return source


def passed_over(source: Source, *, base: Path) -> dict[str, int]:
    """How many local files a source's paths pass over, by the names of `Counts`."""
    match source:
        case Mixture(sources=shares):
            texts = [share.source for share in shares]
        case PythonSource() | Files() | HuggingFace():
            texts = [source]
        case _:
            texts = []
    found = Counter(over.reason for text in texts for over in beside(text, base=base))
    return {name: found[reason] for name, reason in PASSED_OVER.items()}


def read_chunk(source: Source, chunk: Chunk, *, base: Path) -> Iterator[Document | Skipped]:
    """The documents of one chunk: UTF-8 text, or a generator's symbols as little-endian 16-bit integers.

    Raises:
        CorpusError: a file cannot be read or decoded, was changed since it was planned, or a record is wrong.
    """
    match source:
        case Mixture():
            yield from _read_parts(source.sources[chunk.source].source, chunk, base=base)
        case PythonSource() | Files() | HuggingFace():
            yield from _read_parts(source, chunk, base=base)
        case _:
            yield from (symbols.astype(np.dtype("<u2")).tobytes() for symbols in generate(source))


def _chunks(source: TextSource, index: int, *, base: Path, chunk_bytes: int) -> Iterator[Chunk]:
    plan = partial(_plan, source, chunk_bytes=chunk_bytes)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        planned = (part for parts in threads.map(plan, find_files(source, base=base)) for part in parts)
        yield from _grouped(_movable(planned, base=_folder(source, base=base)), index=index, chunk_bytes=chunk_bytes)


def _folder(source: TextSource, *, base: Path) -> Path:
    """Where a source's relative addresses start."""
    return library() if isinstance(source, PythonSource) else resolved(base)


def _movable(planned: Iterable[_Planned], *, base: Path) -> Iterator[_Planned]:
    """Paths as another machine finds them, whose declaration lies elsewhere."""
    for each in planned:
        path = Path(each.part.address)
        is_inside = scheme_of(each.part.address) is None and path.is_relative_to(base)
        address = str(path.relative_to(base)) if is_inside else each.part.address
        yield replace(each, part=replace(each.part, address=address))


def _plan(source: TextSource, address: str, *, chunk_bytes: int) -> list[_Planned]:
    """The parts of one file."""
    file, source = stored(address), with_format(source, name=address)
    match source:
        case HuggingFace() | Files(format="parquet"):
            return _rows(file, tables.parquet_groups(source, file=file), chunk_bytes=chunk_bytes)
        case Files(format="arrow"):
            return _rows(file, tables.arrow_batches(source, file=file), chunk_bytes=chunk_bytes)
        case Files() if file.size > chunk_bytes and file.is_sliceable and compression_of(file) is None:
            return _bytes(file, list(_cuts(source, file=file, chunk_bytes=chunk_bytes)))
        case _:
            return [_Planned(Part(address, 0, file.size, fingerprint(file)), file.size)]


def _cuts(source: Files, *, file: Stored, chunk_bytes: int) -> Iterator[int]:
    if source.format == "text" and source.separator is None:
        return
    with reading(file.address), open_file(file) as opened:
        if source.separator is None:
            yield from json_lines.cuts(opened, size=file.size, chunk_bytes=chunk_bytes)
        else:
            yield from plain_text.cuts(opened, separator=source.separator, size=file.size, chunk_bytes=chunk_bytes)


def _bytes(file: Stored, cuts: list[int]) -> list[_Planned]:
    if not cuts:
        return [_Planned(Part(file.address, 0, file.size, fingerprint(file)), file.size)]
    ends = [0, *cuts, file.size]
    return [
        _Planned(Part(file.address, first, last, fingerprint(file, first=first, last=last)), last - first)
        for first, last in pairwise(ends)
    ]


def _rows(file: Stored, sizes: list[int], *, chunk_bytes: int) -> list[_Planned]:
    """Row groups or batches put together while they fit into a chunk."""
    sha256 = fingerprint(file)
    parts: list[_Planned] = []
    first = size = 0
    for index, num_bytes in enumerate(sizes):
        if size and size + num_bytes > chunk_bytes:
            parts.append(_Planned(Part(file.address, first, index, sha256), size))
            first, size = index, 0
        size += num_bytes
    if first < len(sizes):
        parts.append(_Planned(Part(file.address, first, len(sizes), sha256), size))
    return parts


def _grouped(planned: Iterable[_Planned], *, index: int, chunk_bytes: int) -> Iterator[Chunk]:
    group: list[Part] = []
    size = 0
    for each in planned:
        if group and size + each.num_bytes > chunk_bytes:
            yield Chunk(index, tuple(group))
            group, size = [], 0
        group.append(each.part)
        size += each.num_bytes
    if group:
        yield Chunk(index, tuple(group))


def _read_parts(source: TextSource, chunk: Chunk, *, base: Path) -> Iterator[Document | Skipped]:
    folder = _folder(source, base=base)
    for part in chunk.parts:
        is_path = scheme_of(part.address) is None
        file = stored(os.path.join(folder, part.address) if is_path else part.address)
        known = with_format(source, name=part.address)
        yield from _read_part(known, part, file=file)
        _check_unchanged(part, file=file, source=known)


def _read_part(source: TextSource, part: Part, *, file: Stored) -> Iterator[Document | Skipped]:
    is_whole = part.first == 0 and part.last >= file.size
    match source:
        case HuggingFace() | Files(format="parquet"):
            return tables.read_parquet(source, file=file, first=part.first, last=part.last)
        case Files(format="arrow"):
            return tables.read_arrow(source, file=file, first=part.first, last=part.last)
        case PythonSource():
            return plain_text.read_whole(source, file=file)
        case Files(format="text"):
            if is_whole:
                return plain_text.read_whole(source, file=file)
            return plain_text.read_slice(source, file=file, first=part.first, last=part.last)
        case Files():
            if is_whole:
                return json_lines.read_whole(source, file=file)
            return json_lines.read_slice(source, file=file, first=part.first, last=part.last)


def _check_unchanged(part: Part, *, file: Stored, source: TextSource) -> None:
    """Refuse a part that is no longer what was planned, before anyone keeps what was read."""
    if not is_checkable(file):
        return
    now = stored(file.address)
    is_bytes = isinstance(source, PythonSource) or (isinstance(source, Files) and source.format in ("text", "jsonl"))
    sha256 = fingerprint(now, first=part.first, last=part.last) if is_bytes else known_fingerprint(now)
    if now != file or sha256 != part.sha256:
        raise CorpusError(f"{file.address}: was changed while it was read; prepare the corpus again")
