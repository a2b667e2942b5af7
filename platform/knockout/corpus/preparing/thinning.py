"""How much of each source of a mixture is kept.

The invariant: whether a document stays depends on its content and its source's share alone, and no document is repeated to
fill a share. With b_i bytes of source i and shares s_i, the whole of size T that keeps the shares and repeats nothing is at
most min_i b_i / s_i; each source keeps the fraction T s_i / b_i of its documents, the scarcest all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from knockout.corpus.building import WORK
from knockout.corpus.files.outcomes import left_out
from knockout.corpus.manifest import SourceEntry
from knockout.corpus.preparing.parts import Read, once
from knockout.corpus.preparing.runs import HASHES, kept_entries, read_index
from knockout.declare.corpus import Corpus
from knockout.declare.text_sources import Mixture
from knockout.errors import CorpusError


def kept_of(corpus: Corpus, *, reads: Sequence[Read]) -> Mapping[int, int]:
    """For each source by index the number of 2^64 that its documents' second 64 bits of hash must lie below.

    Raises:
        CorpusError: a source of a mixture has no text.
    """
    if not isinstance(corpus.source, Mixture):
        return {0: HASHES}
    parts = corpus.source.sources
    sizes = [sum(one.num_bytes for one in reads if one.source == index) for index in range(len(parts))]
    empty = [f"{part.name}: {_why(index, reads)}" for index, part in enumerate(parts) if not sizes[index]]
    if empty:
        raise CorpusError(
            f"corpus {corpus.corpus}: no text is left in {'; '.join(empty)}: mend the source, or take it out of the mixture"
        )
    shares = [Fraction(part.share) for part in parts]
    whole = min(size / share for size, share in zip(sizes, shares, strict=True))
    return {index: int(whole * share * HASHES / size) for index, (size, share) in enumerate(zip(sizes, shares, strict=True))}


def _why(source: int, reads: Sequence[Read]) -> str:
    skipped: Counter[str] = Counter()
    for one in reads:
        if one.source == source:
            skipped.update(one.skipped)
    return left_out(skipped)


@dataclass(frozen=True)
class Measuring:
    """Measure what is kept of the runs of one chunk of a mixture."""

    room: str
    source: int
    runs: tuple[str, ...]
    """Names of files in the room's WORK."""
    kept: int
    """Documents stay whose second 64 bits of hash lie below this number."""


@dataclass(frozen=True)
class Measured:
    """Documents of a chunk and their bytes, copies included."""

    source: int
    documents: int
    num_bytes: int
    kept_documents: int
    kept_bytes: int


def measure(task: Measuring) -> Measured:
    """Measure runs before they are merged, or find them measured."""
    work = Path(task.room, WORK)

    def measured() -> Measured:
        index = np.concatenate([read_index(work / name) for name in task.runs])
        kept = kept_entries(index, kept=task.kept)
        return Measured(task.source, *_size(index), *_size(kept))

    if not task.runs:
        return Measured(task.source, 0, 0, 0, 0)
    return Measured(**once(work / f"kept-{task.runs[0]}-{task.kept:x}.json", measured, result=Measured))


def _size(index: np.ndarray) -> tuple[int, int]:
    copies = index["copies"].astype(np.int64)
    return int(copies.sum()), int((copies * index["length"].astype(np.int64)).sum())


def entries(source: Mixture, *, measured: Sequence[Measured]) -> tuple[SourceEntry, ...]:
    """What a mixture holds of each of its sources, and what is left over."""
    total = sum(part.share for part in source.sources)
    found: list[SourceEntry] = []
    for index, part in enumerate(source.sources):
        here = [one for one in measured if one.source == index]
        documents, num_bytes = sum(one.kept_documents for one in here), sum(one.kept_bytes for one in here)
        found.append(
            SourceEntry(
                name=part.name,
                share=part.share / total,
                documents=documents,
                raw_bytes=num_bytes,
                left_documents=sum(one.documents for one in here) - documents,
                left_bytes=sum(one.num_bytes for one in here) - num_bytes,
            )
        )
    return tuple(found)
