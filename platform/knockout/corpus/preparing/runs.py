"""Sorted runs: what is left of a chunk once it is read, its documents in the order of their hashes.

The invariant: a document's content is checked against its SHA-256 whenever it is read back, and a run is there whole or not
at all. What a reader holds in memory is the range of hashes that it asks for, whatever the size and number of runs.

A run file is the contents one after the other, then an index of ENTRY records in the same order, then the number of records
as 8 bytes. Each content stands in a run once, with the number of its copies there.

Shapes: D documents.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np

from knockout.corpus.building import write_whole, writing
from knockout.errors import CorpusError

ENTRY = np.dtype(
    [
        ("place", ">u8", (4,)),  # what documents are ordered by: the content's SHA-256, or another hash for a further copy
        ("content", ">u8", (4,)),
        ("offset", "<u8"),
        ("length", "<u8"),
        ("run", "<u4"),  # in copies: the run that holds the content
        ("copies", "<u4"),
    ]
)
RUN_BYTES = 32 * 2**20
"""Documents that are sorted together in memory; a chunk with more of them becomes several runs."""
ENTRY_BYTES = 256
"""About what a document costs in memory beside its content."""
HASHES = 2**64
"""Places are told apart by their first 64 bits where ranges are cut."""
Decider = Literal["content", "place"]
"""Which hash puts a document on its side. Content: copies of a text stay together. Place: each copy is put by itself, as
what is drawn must be, for what occurs often would else be missing from one side, and the exam be of another language."""


@dataclass(frozen=True)
class Run:
    """A run, and how much of it is kept."""

    path: str
    kept: int = HASHES
    """Documents stay whose content hash's second 64 bits lie below this number: all, but for a thinned source."""


@dataclass(frozen=True)
class Pile:
    """All runs of a corpus, and the further copies of contents; files are named by their paths."""

    runs: tuple[Run, ...]
    fraction: float
    """Share of documents on the validation side."""
    decider: Decider = "content"
    """Which hash decides about the side."""
    copies: tuple[str, ...] = ()
    """Index files of copies: entries without contents of their own."""
    dropped: str | None = None
    """File of the contents, 32 bytes each and sorted, that are left out as near copies of others."""

    def save(self, path: Path) -> None:
        """Write it where tasks find it."""
        write_whole(path, text=json.dumps(asdict(self)))


def open_pile(path: str) -> Pile:
    """The pile that was saved, read once in a process for as long as the file stays."""
    return _open_pile(path, Path(path).stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _open_pile(path: str, written: int) -> Pile:
    plain = json.loads(Path(path).read_bytes())
    runs = tuple(Run(**run) for run in plain["runs"])
    return Pile(**plain | {"runs": runs, "copies": tuple(plain["copies"])})


class Sorter:
    """Takes documents in any order and writes them as sorted runs."""

    def __init__(self, stem: Path) -> None:
        self.stem = stem
        self.written: list[str] = []
        """Names of the files."""
        self.num_bytes = 0
        """Of all documents, copies included."""
        self._contents: dict[bytes, bytes] = {}
        self._copies: dict[bytes, int] = {}
        self._held = 0

    def add(self, document: bytes) -> None:
        """Take one document."""
        self.num_bytes += len(document)
        content = hashlib.sha256(document).digest()
        if content in self._contents:
            self._copies[content] += 1
            return
        self._contents[content] = document
        self._copies[content] = 1
        self._held += len(document) + ENTRY_BYTES
        if self._held >= RUN_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is held as one run."""
        if not self._contents:
            return
        order = sorted(self._contents)
        index = np.zeros(len(order), ENTRY)
        index["content"] = index["place"] = np.frombuffer(b"".join(order), ">u8").reshape(-1, 4)
        index["length"] = [len(self._contents[content]) for content in order]
        index["offset"] = np.cumsum(index["length"]) - index["length"]
        index["copies"] = [self._copies[content] for content in order]
        path = self.stem.with_name(f"{self.stem.name}-{len(self.written):04d}.run")
        with writing(path) as file:
            file.writelines(self._contents[content] for content in order)
            write_index(file, index)
        self.written.append(path.name)
        self._contents, self._copies, self._held = {}, {}, 0


def write_index(file: BinaryIO, index: np.ndarray) -> None:
    """Append a sorted index and its length."""
    file.write(index.tobytes())
    file.write(len(index).to_bytes(8, "little"))


def gather_index(pile: Pile, *, low: int, high: int) -> np.ndarray:
    """Entries of all runs and copies with places in low … high - 1 (first 64 bits), in order; each content's first copy
    as often as there are runs that hold it."""
    runs = [_index_of(run, number=number, low=low, high=high) for number, run in enumerate(pile.runs)]
    found = [*runs, *(_slice(path, low=low, high=high) for path in pile.copies)]
    index = np.concatenate(found, dtype=ENTRY)  # which would else have the machine's byte order
    if pile.dropped is not None:
        index = index[~_among(index["content"], path=pile.dropped)]
    return index[np.lexsort(index["place"].T[::-1])]


def gather(pile: Pile, *, low: int, high: int, validation: bool) -> Iterator[bytes]:
    """Documents of one side whose places lie in low … high - 1, in order; they are held in memory together.

    Raises:
        CorpusError: a run was damaged.
    """
    index = first_copies(gather_index(pile, low=low, high=high))
    index = index[in_validation(index, pile=pile) == validation]
    return iter(contents_of(pile, index))


def contents_of(pile: Pile, index: np.ndarray) -> list[bytes]:
    """The contents of entries, in their order.

    Raises:
        CorpusError: a run was damaged.
    """
    contents: list[bytes] = [b""] * len(index)
    for number in np.unique(index["run"]):
        here = np.flatnonzero(index["run"] == number)
        for place, content in zip(here.tolist(), _read(pile.runs[number].path, index[here]), strict=True):
            contents[place] = content
    return contents


def num_entries(path: Path) -> int:
    """How many contents a run holds."""
    with path.open("rb") as file:
        file.seek(-8, os.SEEK_END)
        return int.from_bytes(file.read(8), "little")


def read_index(path: Path) -> np.ndarray:
    """All entries of a run."""
    return _slice(str(path), low=0, high=HASHES)


def read_all(path: Path) -> Iterator[bytes]:
    """All documents of a run in order, one after the other.

    Raises:
        CorpusError: the run was damaged.
    """
    index = read_index(path)
    return (content for start in range(len(index)) for content in _read(str(path), index[start : start + 1]))


def first_copies(index: np.ndarray) -> np.ndarray:
    """A sorted index with each place once."""
    again = (index["place"][1:] == index["place"][:-1]).all(axis=1)
    return index[np.concatenate([np.ones(min(1, len(index)), bool), ~again])]


def merged(index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first entry of each content, and how often the content occurs altogether."""
    if not len(index):
        return index, np.zeros(0, np.int64)
    again = (index["content"][1:] == index["content"][:-1]).all(axis=1)
    starts = np.flatnonzero(np.concatenate([[True], ~again]))
    return first_copies(index), np.add.reduceat(index["copies"].astype(np.int64), starts)


def in_validation(index: np.ndarray, *, pile: Pile) -> np.ndarray:
    """Whether each document is on the validation side, by the first 53 bits of the hash that decides, read as a fraction."""
    return (index[pile.decider][:, 0] >> np.uint64(11)).astype(np.float64) / 2**53 < pile.fraction


def _index_of(run: Run, *, number: int, low: int, high: int) -> np.ndarray:
    index = _slice(run.path, low=low, high=high)
    index["run"] = number
    return kept_entries(index, kept=run.kept)


def kept_entries(index: np.ndarray, *, kept: int) -> np.ndarray:
    """The entries that stay of a source that is thinned: those whose content hash's second 64 bits lie below `kept`."""
    return index if kept >= HASHES else index[index["content"][:, 1] < np.uint64(kept)]


def _slice(path: str, *, low: int, high: int) -> np.ndarray:
    """A copy of the entries of one file with places in low … high - 1."""
    with Path(path).open("rb") as file:
        file.seek(-8, os.SEEK_END)
        end = file.tell()
        count = int.from_bytes(file.read(8), "little")
        start = end - count * ENTRY.itemsize

        def place(number: int) -> int:
            file.seek(start + number * ENTRY.itemsize)
            return int.from_bytes(file.read(8), "big")

        first = bisect_left(range(count), low, key=place)
        last = bisect_left(range(count), high, lo=first, key=place)
        file.seek(start + first * ENTRY.itemsize)
        return np.frombuffer(bytearray(file.read((last - first) * ENTRY.itemsize)), ENTRY)


def _read(path: str, index: np.ndarray) -> list[bytes]:
    contents: list[bytes] = []
    with Path(path).open("rb") as file:
        for entry in index:
            file.seek(int(entry["offset"]))
            contents.append(file.read(int(entry["length"])))
            if hashlib.sha256(contents[-1]).digest() != entry["content"].tobytes():
                raise CorpusError(f"{path}: damaged at byte {entry['offset']:,}; prepare the corpus again")
    return contents


def _among(content: np.ndarray, *, path: str) -> np.ndarray:
    """Whether each content stands in a sorted file of contents."""
    known = np.fromfile(path, "S32")
    wanted = np.ascontiguousarray(content).view("S32").ravel()
    places = np.minimum(np.searchsorted(known, wanted), max(len(known) - 1, 0))
    return known[places] == wanted if len(known) else np.zeros(len(wanted), bool)


def evenly(parts: int, *, low: int = 0, high: int = HASHES) -> list[tuple[int, int]]:
    """A range of places cut into equal ones."""
    return list(pairwise(low + (high - low) * part // parts for part in range(parts + 1)))
