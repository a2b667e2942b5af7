"""All documents of a source: hashed, split, put in order, and when they are needed kept in one file.

The invariant: what a document is, on which side it falls and where it is packed depend on its content
alone, never on the name or place of its file. Exact copies fall on one side.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from knockout.corpus.manifest import Counts
from knockout.corpus.sources import Documents
from knockout.corpus.text import MAX_CHARACTER_BYTES, pieces
from knockout.errors import CorpusError


@dataclass(frozen=True, slots=True)
class Entry:
    """A document's hashes, and where it lies in the spool."""

    content: bytes
    """SHA-256 of its content."""
    place: bytes
    """What documents are ordered by: the same, but different for each further copy."""
    start: int
    length: int


@dataclass(frozen=True)
class Collected:
    """Every document of a source, in the order of their hashes."""

    entries: tuple[Entry, ...]
    counts: Counts

    def digest(self) -> str:
        """SHA-256 over all documents' hashes, in hex."""
        return hashlib.sha256(b"".join(entry.content for entry in self.entries)).hexdigest()

    def split(self, *, validation: float) -> dict[str, list[Entry]]:
        """The documents of both sides; a content hash's first 53 bits, read as a fraction, decide."""
        sides: dict[str, list[Entry]] = {"train": [], "validation": []}
        for entry in self.entries:
            fraction = (int.from_bytes(entry.content[:8], "big") >> 11) / 2**53
            sides["validation" if fraction < validation else "train"].append(entry)
        return sides


def collect(documents: Documents, *, name: str, spool: Path | None = None) -> Collected:
    """Hash every document, and write their contents into the file `spool` one after the other.

    Raises:
        CorpusError: there is no text at all.
    """
    if spool is None:
        return _collect(documents, name=name, file=None)
    with spool.open("wb") as file:
        return _collect(documents, name=name, file=file)


def _collect(documents: Documents, *, name: str, file: BinaryIO | None) -> Collected:
    entries: list[Entry] = []
    copies: Counter[bytes] = Counter()
    skipped = {"empty": 0, "undecodable": 0}
    start = 0
    for document in documents:
        if not document:
            skipped["undecodable" if document is None else "empty"] += 1
            continue
        content = hashlib.sha256(document).digest()
        entries.append(Entry(content, _place(content, copies[content]), start, len(document)))
        copies[content] += 1
        start += len(document)
        if file is not None:
            file.write(document)
    if not entries:
        raise CorpusError(
            f"corpus {name}: no text is left: {skipped['empty']:,} documents are empty, "
            f"{skipped['undecodable']:,} are not UTF-8"
        )
    entries.sort(key=lambda entry: entry.place)
    return Collected(tuple(entries), Counts(**skipped, duplicates=len(entries) - len(copies)))


def _place(content: bytes, copy: int) -> bytes:
    return hashlib.sha256(content + copy.to_bytes(8, "big")).digest() if copy else content


@dataclass(frozen=True, eq=False)
class Spool:
    """Documents' contents, read from one mapped file in any order."""

    contents: np.ndarray

    @classmethod
    def open(cls, path: Path) -> Spool:
        """Map the file that `collect` wrote."""
        return cls(np.memmap(path, np.uint8, mode="r"))

    def read(self, entry: Entry) -> bytes:
        """One document's content."""
        return self.contents[entry.start : entry.start + entry.length].tobytes()


@dataclass(frozen=True, eq=False)
class TrainingText:
    """What a tokenizer may learn from: the training documents, in the order of their hashes."""

    spool: Spool
    entries: list[Entry]

    @property
    def num_bytes(self) -> int:
        """Bytes of all the documents."""
        return sum(entry.length for entry in self.entries)

    def take(self, at_most: int) -> list[bytes]:
        """Documents in order up to `at_most` (≥ 4) bytes; the last is cut, after a line end if any."""
        taken: list[bytes] = []
        room = at_most
        for entry in self.entries:
            taken.append(pieces(self.spool.read(entry), limit=max(room, MAX_CHARACTER_BYTES))[0])
            room -= entry.length
            if room <= 0:
                break
        return taken
