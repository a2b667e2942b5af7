"""The tasks of a preparation: read a chunk, count copies, encode a range.

The invariant: what a task makes is a function of contents and declaration, its result is written last, and a task whose
result is there is not done again. Tasks name files, never hold them, and can be done in any order by any process.

Shapes: N tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from knockout.corpus.building import WORK, write_whole, writing
from knockout.corpus.encoding.encoders import saved_encoder
from knockout.corpus.files.outcomes import Skipped
from knockout.corpus.manifest import ShardEntry, SplitName
from knockout.corpus.preparing.chunks import Chunk, read_chunk
from knockout.corpus.preparing.ranges import NUM_BUCKETS, Range
from knockout.corpus.preparing.runs import (
    Pile,
    Sorter,
    gather,
    gather_index,
    in_validation,
    merged,
    open_pile,
    write_index,
)
from knockout.corpus.preparing.writing import ShardWriter
from knockout.declare.corpus import Corpus
from knockout.declare.plain import canonical

FOUND = "found.json"
"""The pile of what was read."""
PILE = "pile.json"
"""The same, with the copies that were counted."""
COPIES_AT_A_TIME = 2**18


@dataclass(frozen=True)
class Reading:
    """Read one chunk into sorted runs."""

    room: str
    corpus: Corpus
    base: str
    chunk: Chunk

    @property
    def key(self) -> str:
        """Names the chunk by its content; what else bears on reading names the room."""
        parts = [[part.sha256, part.first, part.last] for part in self.chunk.parts]
        return hashlib.sha256(canonical([self.chunk.source, *parts]).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Read:
    """What one chunk held."""

    source: int
    runs: tuple[str, ...]
    """Names of files in the room's WORK."""
    num_bytes: int
    skipped: dict[str, int]
    """How many documents make no row, by reason."""


def read(task: Reading) -> Read:
    """Read a chunk, or find it read.

    Raises:
        CorpusError: a file of it cannot be read or decoded, a record is wrong, or it has changed.
    """
    stem = Path(task.room, WORK, f"read-{task.key}")

    def work() -> Read:
        sorter = Sorter(stem)
        skipped: Counter[str] = Counter()
        for document in read_chunk(task.corpus.source, task.chunk, base=Path(task.base)):
            if isinstance(document, Skipped):
                skipped[document.reason] += 1
            else:
                sorter.add(document)
        sorter.flush()
        return Read(task.chunk.source, tuple(sorter.written), sorter.num_bytes, dict(skipped))

    return Read(**once(stem.with_suffix(".json"), work, result=Read))


@dataclass(frozen=True)
class Counting:
    """Count the copies of contents in a range of hashes, over all runs."""

    room: str
    number: int
    low: int
    high: int


@dataclass(frozen=True)
class Counted:
    """Documents of a range of hashes and of their copies everywhere, for train and validation."""

    documents: tuple[int, int]
    duplicates: int
    dropped: int
    """Documents that are left out as near or exact copies of others."""
    num_bytes: tuple[tuple[int, ...], tuple[int, ...]]
    """Bytes by bucket of places."""
    copies: tuple[str, ...]
    """Names of files in the room's WORK."""


def count(task: Counting) -> Counted:
    """Count copies, give each its place, and weigh what lies where; or find it counted."""
    work = Path(task.room, WORK)

    def counted() -> Counted:
        pile = open_pile(str(work / FOUND))
        index = gather_index(pile, low=task.low, high=task.high)
        first, times = merged(index)
        dropped = 0
        if pile.dropped is not None:  # with near copies go the exact ones
            everything = gather_index(replace(pile, dropped=None), low=task.low, high=task.high)
            dropped, times = int(everything["copies"].sum()) - len(first), np.ones_like(times)
        tally = _Tally(pile)
        tally.add(first)
        names = []
        for start in range(0, int((times - 1).sum()), COPIES_AT_A_TIME):
            copies = _copies(first, times, start=start)
            tally.add(copies)
            names.append(f"copies-{task.number:05d}-{start // COPIES_AT_A_TIME:04d}.index")
            with writing(work / names[-1]) as file:
                write_index(file, copies)
        sizes = (tuple(tally.num_bytes[0].tolist()), tuple(tally.num_bytes[1].tolist()))
        return Counted((tally.documents[0], tally.documents[1]), int((times - 1).sum()), dropped, sizes, tuple(names))

    return Counted(**once(work / f"counted-{task.number:05d}-{task.low:x}-{task.high:x}.json", counted, result=Counted))


class _Tally:
    """Documents and bytes of both sides, by where they lie."""

    def __init__(self, pile: Pile) -> None:
        self.pile = pile
        self.documents = [0, 0]
        self.num_bytes = np.zeros((2, NUM_BUCKETS), np.int64)

    def add(self, index: np.ndarray) -> None:
        sides = in_validation(index, pile=self.pile)
        buckets = (index["place"][:, 0] // np.uint64(2**64 // NUM_BUCKETS)).astype(np.int64)
        for side in (0, 1):
            here = sides == side
            self.documents[side] += int(here.sum())
            np.add.at(self.num_bytes[side], buckets[here], index["length"][here].astype(np.int64))


def _copies(first: np.ndarray, times: np.ndarray, *, start: int) -> np.ndarray:
    """Entries of at most COPIES_AT_A_TIME further copies from the one numbered `start`, in the order of their places."""
    ends = np.cumsum(times - 1)
    numbers = np.arange(start, min(start + COPIES_AT_A_TIME, int(ends[-1])))
    whose = np.searchsorted(ends, numbers, side="right")
    copy = numbers - (ends - (times - 1))[whose] + 1
    entries = first[whose].copy()
    places = [
        hashlib.sha256(content.tobytes() + number.to_bytes(8, "big")).digest()
        for content, number in zip(entries["content"], copy.tolist(), strict=True)
    ]
    entries["place"] = np.frombuffer(b"".join(places), ">u8").reshape(-1, 4)
    return entries[np.lexsort(entries["place"].T[::-1])]


@dataclass(frozen=True)
class Encoding:
    """Encode one side's documents of a range of places into shards."""

    room: str
    corpus: Corpus
    vocabulary: int
    split: SplitName
    number: int
    range: Range


@dataclass(frozen=True)
class Encoded:
    """The shards of one range."""

    documents: int
    raw_bytes: int
    shards: tuple[ShardEntry, ...]


def encode(task: Encoding) -> Encoded:
    """Encode a range, or find it encoded.

    Raises:
        CorpusError: a run was damaged.
        RuntimeError: the tokenizer's tokens do not stand for the text.
    """
    room = Path(task.room)

    def work() -> Encoded:
        pile = open_pile(str(room / WORK / PILE))
        encoder = saved_encoder(room, corpus=task.corpus, vocabulary=task.vocabulary)
        writer = ShardWriter(room, name=f"{task.split}-{task.number:05d}", encoder=encoder, split=task.split)
        for low, high in task.range.steps():
            writer.write(gather(pile, low=low, high=high, validation=task.split == "validation"))
        return Encoded(writer.documents, writer.raw_bytes, writer.finish())

    where = f"{task.split}-{task.number:05d}-{task.range.low:x}-{task.range.high:x}.json"
    plain = once(room / WORK / where, work, result=Encoded)
    shards = tuple(ShardEntry.model_validate(shard) for shard in plain.pop("shards"))
    return Encoded(**plain, shards=shards)


def once(path: Path, work: Callable[[], Any], *, result: type[Any]) -> dict[str, Any]:
    """The fields of the `result` that lies at `path`; the work is done, and its result written there, where there is none.

    One of another release of knockout, with other fields, is none, and so is one that a power failure cut short.
    """
    known = _fields(path) if path.exists() else {}
    if set(known) != {field.name for field in fields(result)}:
        write_whole(path, text=json.dumps(asdict(work()), default=lambda declared: declared.model_dump(mode="json")))
        known = _fields(path)
    return known


def _fields(path: Path) -> dict[str, Any]:
    try:
        plain = json.loads(path.read_bytes())
    except ValueError:
        return {}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}
