"""A declared corpus to a prepared one: a folder of shards with a manifest.

The invariant: the folder's name holds a hash of every document's content and of the whole declaration, read
anew each time, so that a prepared corpus is reused exactly when preparing it again would give the same
tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial as bind
from pathlib import Path

import numpy as np

from knockout.corpus.building import building, exclusive, write_durably
from knockout.corpus.collect import Collected, Entry, Spool, TrainingText, collect
from knockout.corpus.encoders import Encoder, check_vocabulary, make_encoder
from knockout.corpus.floors import MAX_FIT_TOKENS, counting_floors
from knockout.corpus.generators import entropy_rate
from knockout.corpus.manifest import (
    FORMAT,
    MANIFEST,
    EvaluationEntry,
    Floors,
    Manifest,
    SplitEntry,
    Splits,
    TokenizerFile,
    canonical,
    content_digest,
    read_manifest,
)
from knockout.corpus.shards import file_sha256, map_shard, verify
from knockout.corpus.sources import read_documents
from knockout.corpus.writing import write_split
from knockout.declare.corpus import Corpus
from knockout.declare.generators import Generator
from knockout.errors import CorpusError

Progress = Callable[[str, float], None]
"""Called with a stage's name and how much of it is done, 0 … 1."""


@dataclass(frozen=True)
class Prepared:
    """A prepared corpus."""

    manifest: Manifest
    folder: Path
    reused: bool
    """Whether it was there already."""


def prepare(corpus: Corpus, *, vocabulary: int, folder: Path, base: Path, progress: Progress | None = None) -> Prepared:
    """Prepare a corpus in a folder of its own under `folder`, or find it there.

    `base` is where the declaration's relative paths start. Two processes that prepare the same corpus share
    the work: the second waits.

    Raises:
        CorpusError: there is no text, too little of it, it cannot be decoded, or the vocabulary is too small for it.
        WorkspaceError: `folder` cannot be written.
    """
    report = progress or _silent
    check_vocabulary(corpus, vocabulary=vocabulary)
    found = _collect(corpus, base=base, report=bind(report, "reading"))
    target = _target(corpus, vocabulary=vocabulary, folder=folder, found=found)
    if (manifest := _intact(target)) is not None:
        return Prepared(manifest, target, reused=True)
    with exclusive(target, on_wait=bind(report, "waiting for another process", 0.0)):
        if (manifest := _intact(target)) is not None:
            return Prepared(manifest, target, reused=True)
        with building(target) as room:
            manifest = _build(corpus, vocabulary=vocabulary, room=room, base=base, known=found, report=report)
    return Prepared(manifest, target, reused=False)


def find(corpus: Corpus, *, vocabulary: int, folder: Path, base: Path) -> Prepared | None:
    """The prepared corpus where it is there and up to date, else None. Reads the text, prepares nothing.

    Raises:
        CorpusError: there is no text, it cannot be decoded, or the vocabulary is too small for it.
    """
    check_vocabulary(corpus, vocabulary=vocabulary)
    found = _collect(corpus, base=base, report=bind(_silent, "reading"))
    target = _target(corpus, vocabulary=vocabulary, folder=folder, found=found)
    manifest = _intact(target)
    return None if manifest is None else Prepared(manifest, target, reused=True)


def _target(corpus: Corpus, *, vocabulary: int, folder: Path, found: Collected) -> Path:
    return folder / f"{corpus.corpus}-{vocabulary}-{_key(corpus, vocabulary, found)[:16]}"


def _silent(stage: str, fraction: float) -> None:
    return None


def _collect(corpus: Corpus, *, base: Path, report: Callable[[float], None], spool: Path | None = None) -> Collected:
    documents = read_documents(corpus.source, base=base, progress=report)
    return collect(documents, name=corpus.corpus, spool=spool)


def _key(corpus: Corpus, vocabulary: int, found: Collected) -> str:
    declared = corpus.model_dump(mode="json")
    plain = {"format": FORMAT, "declaration": declared, "vocabulary": vocabulary, "documents": found.digest()}
    return hashlib.sha256(canonical(plain | {"counts": found.counts.model_dump()}).encode()).hexdigest()


def check(folder: Path) -> Manifest:
    """The manifest of a prepared corpus each of whose files is there and unchanged.

    Raises:
        CorpusError: there is no manifest, or a file is missing or is not what it was.
    """
    manifest = read_manifest(folder)
    for shard in manifest.splits.train.shards + manifest.splits.validation.shards:
        verify(folder / shard.file, sha256=shard.sha256, again=True)
    if manifest.tokenizer is not None:
        verify(folder / manifest.tokenizer.file, sha256=manifest.tokenizer.sha256, again=True)
    return manifest


def _intact(target: Path) -> Manifest | None:
    """The manifest when the corpus is whole; a damaged one is built again."""
    if not target.is_dir():
        return None
    try:
        return check(target)
    except CorpusError:
        return None


def _build(corpus: Corpus, *, vocabulary: int, room: Path, base: Path, known: Collected, report: Progress) -> Manifest:
    spool_file = room / "spool"
    found = _collect(corpus, base=base, report=bind(report, "reading"), spool=spool_file)
    if found.digest() != known.digest():
        raise CorpusError(f"corpus {corpus.corpus}: its files were changed while they were read; prepare it again")
    spool = Spool.open(spool_file)
    sides = found.split(validation=corpus.validation)
    _both_sides(sides, corpus=corpus)
    report("tokenizer", 0.0)
    encoder = make_encoder(corpus, vocabulary=vocabulary, text=TrainingText(spool, sides["train"]))
    report("tokenizer", 1.0)
    splits = _write_splits(sides, corpus=corpus, room=room, spool=spool, encoder=encoder, report=report)
    spool_file.unlink()
    manifest = _describe(corpus, found=found, splits=splits, encoder=encoder, room=room, report=report)
    write_durably(room / MANIFEST, text=manifest.model_dump_json(indent=1))
    return manifest


def _both_sides(sides: dict[str, list[Entry]], *, corpus: Corpus) -> None:
    empty = [name for name, entries in sides.items() if not entries]
    if empty:
        total = sum(map(len, sides.values()))
        raise CorpusError(
            f"corpus {corpus.corpus}: none of its {total:,} documents falls into the {empty[0]} split at "
            f"validation {corpus.validation}: add documents, cut the text into more (source.separator), or "
            "change validation"
        )


def _write_splits(
    sides: dict[str, list[Entry]],
    *,
    corpus: Corpus,
    room: Path,
    spool: Spool,
    encoder: Encoder,
    report: Progress,
) -> Splits:
    write = bind(write_split, folder=room, spool=spool, encoder=encoder)
    validation = write(sides["validation"], split="validation", progress=bind(report, "encoding validation"))
    _enough(validation, corpus=corpus)
    train = write(sides["train"], split="train", progress=bind(report, "encoding train"))
    return Splits(train=train, validation=validation)


def _enough(validation: SplitEntry, *, corpus: Corpus) -> None:
    exam = corpus.evaluation
    if validation.tokens <= exam.tokens:
        most = (validation.tokens - 1) // exam.segments * exam.segments
        lower = f"lower evaluation.tokens to at most {most:,}, " if most else ""
        raise CorpusError(
            f"corpus {corpus.corpus}: its validation split has {validation.tokens:,} tokens in "
            f"{validation.documents:,} documents, the evaluation needs {exam.tokens + 1:,}: "
            f"{lower}raise validation above {corpus.validation}, or add text"
        )


def _describe(
    corpus: Corpus, *, found: Collected, splits: Splits, encoder: Encoder, room: Path, report: Progress
) -> Manifest:
    report("floors", 0.0)
    exam_SL, evaluation = _exam(corpus, split=splits.validation, room=room, encoder=encoder)
    floors = _floors(corpus, exam_SL=exam_SL, train=splits.train, room=room, vocabulary=len(encoder.token_bytes_V))
    report("floors", 1.0)
    manifest = Manifest(
        format=FORMAT,
        digest="",
        declaration=corpus,
        vocabulary=len(encoder.token_bytes_V),
        end_of_text=encoder.end_of_text,
        token_bytes=tuple(encoder.token_bytes_V.tolist()),
        tokenizer=_save_tokenizer(encoder, room=room),
        splits=splits,
        counts=found.counts,
        evaluation=evaluation,
        floors=floors,
    )
    return manifest.model_copy(update={"digest": content_digest(manifest)})


def _exam(corpus: Corpus, *, split: SplitEntry, room: Path, encoder: Encoder) -> tuple[np.ndarray, EvaluationEntry]:
    """The exam's segments [S, L] and their description; they lie evenly in the split and share no target."""
    num_segments, num_targets = corpus.evaluation.segments, corpus.evaluation.tokens
    starts_S = np.arange(num_segments) * (split.tokens - 1) // num_segments
    length = num_targets // num_segments
    tokens = _first_tokens(split, room=room, count=split.tokens)
    exam_SL = tokens[starts_S[:, None] + np.arange(length + 1)]
    return exam_SL, EvaluationEntry(
        split="validation",
        starts=tuple(starts_S.tolist()),
        segment_tokens=length,
        tokens=num_targets,
        bytes=int(encoder.token_bytes_V[exam_SL[:, 1:]].sum()),
        dtype="float32",
    )


def _floors(corpus: Corpus, *, exam_SL: np.ndarray, train: SplitEntry, room: Path, vocabulary: int) -> Floors:
    fitted_N = _first_tokens(train, room=room, count=min(train.tokens, MAX_FIT_TOKENS))
    counted = counting_floors(fitted_N, exam_SL=exam_SL, vocabulary=vocabulary)
    rate = entropy_rate(corpus.source) if isinstance(corpus.source, Generator) else None
    return Floors(unigram=counted.unigram, bigram=counted.bigram, entropy_rate=rate)


def _first_tokens(split: SplitEntry, *, room: Path, count: int) -> np.ndarray:
    parts: list[np.ndarray] = []
    for shard in split.shards:
        parts.append(map_shard(room, entry=shard)[:count])
        count -= len(parts[-1])
        if count == 0:
            break
    return np.concatenate(parts)


def _save_tokenizer(encoder: Encoder, *, room: Path) -> TokenizerFile | None:
    encoder.save(room)
    if encoder.file is None:
        return None
    path = room / encoder.file
    write_durably(path, text=path.read_text("utf-8"))
    return TokenizerFile(file=encoder.file, sha256=file_sha256(path))
