"""Documents that are nearly copies of others, found by MinHash; of a group of them one stays.

The invariant: which one stays follows from contents alone: that with the smallest hash. So neither the order of documents
nor the number of workers can be seen in it, and no near copy of a training document is in the exam.

Two documents are compared by their shingles, all runs of some words; one without words is compared with none. A signature's
share of equal numbers estimates the shingles' Jaccard similarity (Broder, "On the resemblance and containment of
documents", 1997). Pairs that agree in a whole band of their signatures are compared (Leskovec, Rajaraman and Ullman,
"Mining of massive datasets", section 3.4); in each band's bucket a document is compared with the one before it and with the
first, in the order of their hashes, and those that are similar enough belong together, also by way of others.

Signatures lie in files, 4 bytes for each permutation. A band takes 56 bytes of memory for each document.

Shapes: D documents, P permutations, E pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from knockout.corpus.building import WORK, writing
from knockout.corpus.preparing.runs import ENTRY, HASHES, read_all, read_index
from knockout.declare.corpus import MinHash
from knockout.errors import CorpusError

HASH = "S32"
NOTHING = np.iinfo(np.uint32).max
"""Each number in the signature of a text without words, which is like no other."""


@dataclass(frozen=True)
class Signing:
    """Sign all documents of one run."""

    room: str
    run: str
    method: MinHash


def sign(task: Signing) -> str:
    """Sign a run's documents, or find them signed; the name of the file of signatures, uint32 [D, P].

    Raises:
        CorpusError: the run was damaged, or datasketch is not installed.
    """
    path = Path(task.room, WORK, f"{task.run}.signatures.npy")
    if not path.exists():
        signed = [_signature(text, method=task.method) for text in read_all(Path(task.room, WORK, task.run))]
        with writing(path) as file:
            np.save(file, np.stack(signed))
    return path.name


@dataclass(frozen=True)
class Comparing:
    """Compare the documents that agree in one band."""

    room: str
    runs: tuple[tuple[str, int], ...]
    """Names of runs, and how much of each is kept."""
    band: int
    method: MinHash


def compare(task: Comparing) -> str:
    """Find similar pairs in a band, or find them found; the name of their file, contents' hashes [E, 2]."""
    work = Path(task.room, WORK)
    path = work / f"similar-{task.band:03d}.npy"
    if path.exists():
        return path.name
    rows = bands(task.method)[1]
    signatures = [np.load(work / f"{run}.signatures.npy", mmap_mode="r") for run, _ in task.runs]
    index = np.concatenate([read_index(work / run) for run, _ in task.runs], dtype=ENTRY)
    contents = np.ascontiguousarray(index["content"]).view(HASH).ravel()
    columns = slice(task.band * rows, (task.band + 1) * rows)
    keys = np.concatenate([np.ascontiguousarray(part[:, columns]).view(f"V{4 * rows}").ravel() for part in signatures])
    _, buckets = np.unique(keys, return_inverse=True)
    limits = np.repeat([min(kept, HASHES - 1) for _, kept in task.runs], list(map(len, signatures)))
    has_words = np.concatenate([(part[:, columns] != NOTHING).any(axis=1) for part in signatures])
    there = np.flatnonzero((index["content"][:, 1] <= limits.astype(np.uint64)) & has_words)
    order = there[np.lexsort((contents[there], buckets[there]))]
    pairs = order[_candidates(buckets[order], contents[order])]
    firsts = np.cumsum([0, *map(len, signatures)])
    alike = [_agreement(signatures, firsts, one, other) >= task.method.threshold for one, other in pairs.tolist()]
    with writing(path) as file:
        np.save(file, contents[pairs[np.array(alike, bool)]].reshape(-1, 2))
    return path.name


def dropped(names: Sequence[str], *, work: Path) -> np.ndarray:
    """Contents that are left out, sorted: all but the smallest of each group of similar ones."""
    found = [np.load(work / name) for name in names]
    pairs = np.unique(np.concatenate([each for each in found if len(each)] or [np.zeros((0, 2), HASH)]), axis=0)
    leader: dict[bytes, bytes] = {}

    def lead(content: bytes) -> bytes:
        while (above := leader.get(content, content)) != content:
            leader[content] = content = leader.get(above, above)
        return content

    for one, other in pairs.tolist():
        low, high = sorted((lead(one), lead(other)))
        leader[high] = low
    return np.array(sorted(content for content in leader if lead(content) != content), HASH)


def bands(method: MinHash) -> tuple[int, int]:
    """Number of bands and their rows, for which missed and needless comparisons at the threshold are fewest."""
    from datasketch import MinHashLSH

    try:
        lsh = MinHashLSH(threshold=method.threshold, num_perm=method.permutations)
    except ValueError:  # near 1, where datasketch finds less than two bands
        return 2, method.permutations // 2
    return lsh.b, lsh.r


def _signature(text: bytes, *, method: MinHash) -> np.ndarray:
    try:
        from datasketch import MinHash as Signature
    except ImportError:
        raise CorpusError("near_duplicates needs datasketch: pip install 'knockout[near-duplicates]'") from None
    words = text.split()
    if not words:
        return np.full(method.permutations, NOTHING, np.uint32)
    shingles = {b" ".join(words[start : start + method.words]) for start in range(max(1, len(words) - method.words + 1))}
    signature = Signature(num_perm=method.permutations, seed=1, scheme="affine32")
    signature.update_batch(shingles)
    return signature.hashvalues.astype(np.uint32)


def _candidates(buckets: np.ndarray, contents: np.ndarray) -> np.ndarray:
    """Places of pairs that share a bucket: each with the one before and with the bucket's first; [E, 2]."""
    places = np.arange(len(buckets))
    starts = np.concatenate([[True], buckets[1:] != buckets[:-1]])
    first = np.maximum.accumulate(np.where(starts, places, 0))
    near = np.stack([places[1:] - 1, places[1:]], axis=1)[~starts[1:]]
    far = np.stack([first, places], axis=1)[places - first > 1]
    pairs = np.concatenate([near, far])
    return pairs[contents[pairs[:, 0]] != contents[pairs[:, 1]]]


def _agreement(signatures: list[np.ndarray], firsts: np.ndarray, one: int, other: int) -> float:
    rows = []
    for place in (one, other):
        part = int(np.searchsorted(firsts, place, side="right")) - 1
        rows.append(signatures[part][place - firsts[part]])
    return float((rows[0] == rows[1]).mean())
