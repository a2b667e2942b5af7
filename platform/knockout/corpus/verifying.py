"""Whether a prepared corpus is what its manifest says, told from every token of it.

The invariant: nothing is believed that can be counted. One fault does not hide the others, unless nothing can be read.

Shapes: N tokens of a step, V vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from knockout.corpus.inspection import SPLITS, documents
from knockout.corpus.manifest import Manifest, read_manifest
from knockout.corpus.overlap import check_disjoint
from knockout.corpus.reading import Split, open_split
from knockout.corpus.shards import verify
from knockout.errors import CorpusError

Progress = Callable[[str, float], None]
"""Called with what is checked and how much of it is done, 0 … 1."""

REMEDY = "remove the folder, and prepare the corpus again"
"""For what only reading every token tells."""


def faults(folder: Path, *, progress: Progress) -> Iterator[str]:
    """What is wrong with a prepared corpus, one sentence each: its manifest, files, tokens, exam, overlapping splits."""
    try:
        manifest = read_manifest(folder)
    except CorpusError as error:
        yield str(error)
        return
    found = list(_files(folder, manifest=manifest, progress=progress))
    yield from found
    if found:
        return
    splits = {name: open_split(folder, split=name) for name in SPLITS}
    for name, split in splits.items():
        yield from (f"{folder}: {name}: {fault}; {REMEDY}" for fault in _tokens(split, name=name, progress=progress))
    exam = _exam(splits[manifest.evaluation.split], manifest=manifest)
    yield from (f"{folder}: exam: {fault}; {REMEDY}" for fault in exam)
    progress("splits", 0.0)
    try:
        check_disjoint(splits["train"], splits["validation"])
    except CorpusError as error:
        yield str(error)
    progress("splits", 1.0)


def _files(folder: Path, *, manifest: Manifest, progress: Progress) -> Iterator[str]:
    """Files that are missing or changed."""
    named = [*manifest.splits.train.shards, *manifest.splits.validation.shards]
    files = [*named, manifest.tokenizer] if manifest.tokenizer is not None else named
    for number, file in enumerate(files, start=1):
        try:
            verify(folder / file.file, sha256=file.sha256, again=True)
        except CorpusError as error:
            yield str(error)
        progress("files", number / len(files))


def _tokens(split: Split, *, name: str, progress: Progress) -> Iterator[str]:
    """Counts that differ from those of the split's tokens."""
    manifest, said = split.manifest, split.manifest.split(name)
    token_bytes_V = np.array(manifest.token_bytes, np.int64)
    sha256, done = hashlib.sha256(), 0
    ended = counted = raw_bytes = 0
    for tokens_N, _, ends_D in documents(split):
        if (largest := int(tokens_N.max())) >= manifest.vocabulary:
            yield f"token {largest:,} is beyond the vocabulary of {manifest.vocabulary:,}"
            return
        raw_bytes += int(token_bytes_V @ np.bincount(tokens_N, minlength=manifest.vocabulary))
        sha256.update(tokens_N.astype(np.dtype("<u4")).tobytes())
        done += len(tokens_N)
        counted += len(ends_D)
        ended = int(ends_D[-1]) + 1 if len(ends_D) else ended
        progress(f"{name} tokens", done / split.num_tokens)
    for what, found, wanted in (
        ("tokens", done, said.tokens),
        ("documents", counted, said.documents),
        ("raw bytes", raw_bytes, said.raw_bytes),
    ):
        if found != wanted:
            yield f"its files hold {found:,} {what}, its manifest says {wanted:,}"
    if ended != done:
        yield f"its last {done - ended:,} tokens are a document without an end"
    if sha256.hexdigest() != said.content_sha256:
        yield f"its tokens have SHA-256 {sha256.hexdigest()[:16]}…, its manifest says {said.content_sha256[:16]}…"


def _exam(split: Split, *, manifest: Manifest) -> Iterator[str]:
    """An exam that is not in its split, or not of as many bytes as it says."""
    exam = manifest.evaluation
    try:
        exam_SL = split.gather(np.array(exam.starts), length=exam.segment_tokens + 1)
    except CorpusError as error:
        yield str(error)
        return
    num_bytes = int(np.array(manifest.token_bytes, np.int64)[exam_SL[:, 1:]].sum())
    if num_bytes != exam.bytes:
        yield f"its tokens stand for {num_bytes:,} bytes, its manifest says {exam.bytes:,}"
