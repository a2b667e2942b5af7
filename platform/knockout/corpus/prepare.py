"""A declared corpus to a prepared one: a folder of shards with a manifest.

The invariant: the folder's name holds a hash of every file's bytes and of the whole declaration, read anew each time, so
that a prepared corpus is reused exactly when preparing it again would give the same tokens.

How it goes: a chunk of files (16 MB) becomes a run of documents sorted by hash; copies are counted over all runs; merges are
learnt from the head of the training documents; each range of hashes (2 to 32 MB) is gathered from all runs, encoded, checked
and written as a shard; the manifest comes last. Chunks and ranges are tasks that any process can do, whose results are
files, so a preparation that was cut off goes on where it was. Memory is workers × (a run's 32 MB, or a range's tokens and a
step of 4 MB), and in the owner the tokenizer's sample and the counts of the floors. A longer document is held whole, as
line, text and tokens: about six times its size (1.77 GB for 300 MB of JSON lines).

What 10 TB of text in 4 kB documents costs on paper, at 3.5 bytes a token and 16 MB/s for each core:
  reading    600,000 chunks; their runs are 10 TB of work space and 88 bytes for each document (220 GB), merged by 1,200 to
             512 of 20 GB, which takes as much again while it lasts
  encoding   300,000 ranges, 170 hours of one core; 4 MB are a slice of each of 512 runs, 0.05 s against 0.25 s of encoding
  shards     300,000 files, 5.7 TB; the manifest is 40 MB, and a second or two to read
  at the end one process hashes all tokens once, 4 bytes each: 11 TB, two hours
What breaks first: at 2 TB a training process maps 65,530 shards, the most that Linux lets it by default
(vm.max_map_count); then the hours in which `check` reads every shard before a submission. Larger ranges cure the first,
and a verdict kept beside each shard the second. Sources alone are not the limit: fingerprints are read at 1 GB/s and core.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial as bind
from pathlib import Path

from knockout.corpus.building import building, exclusive, write_whole
from knockout.corpus.encoding.encoders import check_vocabulary
from knockout.corpus.files.addresses import find_files
from knockout.corpus.files.outcomes import within
from knockout.corpus.files.stores import scheme_of
from knockout.corpus.manifest import FORMAT, MANIFEST, Manifest, read_manifest, sealed
from knockout.corpus.preparing.chunks import Chunk, chunks_of, with_formats
from knockout.corpus.preparing.engine import Preparation, Progress
from knockout.corpus.preparing.workers import Here, Processes, Workers, usable_cores
from knockout.corpus.shards import verify
from knockout.declare.corpus import Corpus, MinHash, Source
from knockout.declare.generators import Generator
from knockout.declare.plain import canonical
from knockout.declare.text_sources import Files, Mixture
from knockout.errors import CorpusError

LITTLE_BYTES = 4 * 2**20
"""A single chunk of no more is prepared in this process."""


@dataclass(frozen=True)
class Prepared:
    """A prepared corpus."""

    manifest: Manifest
    folder: Path
    reused: bool
    """Whether it was there already."""
    damage: str | None = None
    """What was wrong with the one that was there, in whose place it was prepared; None where nothing was."""


def prepare(
    corpus: Corpus,
    *,
    vocabulary: int,
    folder: Path,
    base: Path,
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> Prepared:
    """Prepare a corpus in a folder of its own under `folder`, or find it there; what was cut off is gone on with.

    `base` is where the declaration's relative paths start. Two processes that prepare the same corpus share
    the work: the second waits. `workers` do the tasks; None: processes on this machine's cores where there is enough to do.

    Raises:
        CorpusError: there is no text, too little of it, it cannot be decoded, or the vocabulary is too small for it.
        WorkspaceError: `folder` cannot be written, or a worker was killed.
    """
    report = progress or _silent
    check_vocabulary(corpus, vocabulary=vocabulary)
    corpus, chunks = _planned(corpus, base=base)
    target = _target(corpus, vocabulary=vocabulary, folder=folder, chunks=chunks)
    if isinstance(there := _there(target), Manifest):
        return Prepared(there, target, reused=True)
    with exclusive(target, on_wait=bind(report, "waiting for another process", 0.0, 0)):
        if isinstance(there := _there(target), Manifest):
            return Prepared(there, target, reused=True)
        with building(target) as room:
            hands = workers or _local(chunks)
            try:
                manifest = sealed(Preparation(corpus, vocabulary, base, room, hands, report).build(chunks))
            finally:
                if workers is None:
                    hands.close()
            _keep_only(manifest, room=room)
            write_whole(room / MANIFEST, text=manifest.model_dump_json(indent=1))
    return Prepared(manifest, target, reused=False, damage=there)


def find(corpus: Corpus, *, vocabulary: int, folder: Path, base: Path) -> Prepared | None:
    """The prepared corpus where it is there and up to date, else None. Prepares nothing, and reads the files' bytes, or asks
    their store, only where one of that name and vocabulary was ever prepared.

    Raises:
        CorpusError: there are no files, or the vocabulary is too small.
    """
    check_vocabulary(corpus, vocabulary=vocabulary)
    if not any(folder.glob(f"{corpus.corpus}-{vocabulary}-*")):
        with within(f"corpus {corpus.corpus}"):
            _check_here(corpus.source, base=base)
        return None
    target = folder_of(corpus, vocabulary=vocabulary, folder=folder, base=base)
    there = _there(target)
    return Prepared(there, target, reused=True) if isinstance(there, Manifest) else None


def folder_of(corpus: Corpus, *, vocabulary: int, folder: Path, base: Path) -> Path:
    """Where a corpus lies under `folder` once it is prepared as it is declared and as its files are now; reads their bytes.

    Raises:
        CorpusError: there are no files, or one cannot be read.
    """
    corpus, chunks = _planned(corpus, base=base)
    return _target(corpus, vocabulary=vocabulary, folder=folder, chunks=chunks)


def check(folder: Path) -> Manifest:
    """The manifest of a prepared corpus each of whose files is there and unchanged.

    Raises:
        CorpusError: there is no manifest, or a file is missing or is not what it was.
    """
    manifest = read_manifest(folder)
    with ThreadPoolExecutor(usable_cores()) as threads:
        list(threads.map(lambda file: verify(folder / file[0], sha256=file[1], again=True), _files(manifest)))
    return manifest


def _files(manifest: Manifest) -> list[tuple[str, str]]:
    """Name and SHA-256 of each file that a manifest speaks of."""
    shards = manifest.splits.train.shards + manifest.splits.validation.shards
    tokenizer = [] if manifest.tokenizer is None else [manifest.tokenizer]
    return [(file.file, file.sha256) for file in (*shards, *tokenizer)]


def _keep_only(manifest: Manifest, *, room: Path) -> None:
    """Remove what an interrupted preparation wrote and this one has no use for, as one of another release may."""
    named = {file for file, _ in _files(manifest)}
    for path in room.iterdir():
        if path.is_file() and path.name not in named:
            path.unlink()


def _planned(corpus: Corpus, *, base: Path) -> tuple[Corpus, Sequence[Chunk]]:
    """The corpus with the formats of its files, and its chunks; raises CorpusError as `chunks_of`."""
    with within(f"corpus {corpus.corpus}"):
        chunks = chunks_of(corpus.source, base=base)
    return corpus.model_copy(update={"source": with_formats(corpus.source, chunks=chunks)}), chunks


def _target(corpus: Corpus, *, vocabulary: int, folder: Path, chunks: Sequence[Chunk]) -> Path:
    return folder / f"{corpus.corpus}-{vocabulary}-{_key(corpus, vocabulary, chunks)[:16]}"


def _key(corpus: Corpus, vocabulary: int, chunks: Sequence[Chunk]) -> str:
    files = sorted((chunk.source, part.sha256, part.first, part.last) for chunk in chunks for part in chunk.parts)
    declared = corpus.model_dump(mode="json")
    plain = {"format": FORMAT, "declaration": declared, "vocabulary": vocabulary, "files": files}
    if isinstance(corpus.source, Generator):
        plain["sides"] = "by place"
    if isinstance(corpus.near_duplicates, MinHash):
        plain["exact_copies"] = "left out"
    return hashlib.sha256(canonical(plain).encode()).hexdigest()


def _check_here(source: Source, *, base: Path) -> None:
    """Whether there are files where a source names some on this machine; no store is asked."""
    match source:
        case Mixture():
            for share in source.sources:
                _check_here(share.source, base=base)
        case Files():
            if here := tuple(path for path in source.paths if scheme_of(path) is None):
                find_files(source.model_copy(update={"paths": here}), base=base)


def _there(target: Path) -> Manifest | str | None:
    """The manifest when the corpus is whole, what is wrong with one that is not, or None where there is none."""
    if not target.is_dir():
        return None
    try:
        return check(target)
    except CorpusError as error:
        return str(error)


def _local(chunks: Sequence[Chunk]) -> Workers:
    """Processes on all cores where there is enough for them to do; generators' documents count as bytes here."""
    size = sum(part.last - part.first for chunk in chunks for part in chunk.parts)
    is_much = len(chunks) > 1 or size > LITTLE_BYTES
    return Processes(usable_cores()) if is_much and usable_cores() > 1 else Here()


def _silent(stage: str, fraction: float, num_bytes: int) -> None:
    return None
