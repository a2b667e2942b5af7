"""The encoder that a declaration asks for.

The invariant: what a prepared corpus' tokens stand for follows from its folder alone.

Shapes: N tokens of one document, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import final

import numpy as np

from knockout.corpus.encoding.bpe import TOKENIZER, BpeEncoder, fit_bpe
from knockout.corpus.encoding.encoder import Encoder
from knockout.corpus.encoding.training_text import TrainingText
from knockout.corpus.manifest import Manifest
from knockout.corpus.shards import verify
from knockout.declare.corpus import Bpe, Bytes, Corpus, Identity
from knockout.declare.generators import Generator
from knockout.errors import CorpusError

NUM_BYTES = 256


@final
class ByteEncoder(Encoder):
    """Each byte is its own token."""

    def __init__(self, *, vocabulary: int) -> None:
        self.end_of_text = NUM_BYTES
        self.token_bytes_V = _ones(NUM_BYTES, vocabulary=vocabulary)

    def encode(self, documents: list[bytes]) -> list[np.ndarray]:
        return [np.frombuffer(document, np.uint8).astype(np.uint16) for document in documents]

    def _content(self, tokens_N: np.ndarray) -> bytes:
        return tokens_N.astype(np.uint8).tobytes()


@final
class SymbolEncoder(Encoder):
    """A generator's symbols are tokens; each counts as one raw byte: bits per byte are bits per symbol."""

    unit_bytes = 2

    def __init__(self, *, alphabet: int, vocabulary: int) -> None:
        self.end_of_text = alphabet
        self.token_bytes_V = _ones(alphabet, vocabulary=vocabulary)

    def encode(self, documents: list[bytes]) -> list[np.ndarray]:
        return [np.frombuffer(document, np.dtype("<u2")) for document in documents]

    def _content(self, tokens_N: np.ndarray) -> bytes:
        return tokens_N.astype(np.dtype("<u2")).tobytes()


def check_vocabulary(corpus: Corpus, *, vocabulary: int) -> None:
    """Whether a vocabulary has room for the least that a corpus needs, known before any text is read.

    Raises:
        CorpusError: it has not.
    """
    count, what = NUM_BYTES, "bytes"
    if isinstance(corpus.source, Generator):
        count, what = corpus.source.alphabet, "symbols"
    if vocabulary <= count:
        raise CorpusError(
            f"corpus {corpus.corpus}: a vocabulary of {vocabulary:,} is too small: "
            f"the {count:,} {what} and end-of-text are {count + 1:,}"
        )


def make_encoder(corpus: Corpus, *, vocabulary: int, text: TrainingText, folder: Path) -> Encoder:
    """The declared encoder; merges are learnt from `text`, or found in `folder`, where they are written.

    Raises:
        CorpusError: the vocabulary is too small for the tokens, or larger than the text supports.
    """
    check_vocabulary(corpus, vocabulary=vocabulary)
    match corpus.tokenizer:
        case Bpe(sample_bytes=sample_bytes):
            path = folder / TOKENIZER
            if not path.exists():
                fit_bpe(text, sample_bytes=sample_bytes, vocabulary=vocabulary, name=corpus.corpus, path=path)
        case Bytes() | Identity():
            pass
    return saved_encoder(folder, corpus=corpus, vocabulary=vocabulary)


def saved_encoder(folder: Path, *, corpus: Corpus, vocabulary: int) -> Encoder:
    """The declared encoder, where its merges were learnt."""
    if isinstance(corpus.tokenizer, Bpe):
        return BpeEncoder(folder / TOKENIZER, vocabulary=vocabulary)
    if isinstance(corpus.source, Generator):
        return SymbolEncoder(alphabet=corpus.source.alphabet, vocabulary=vocabulary)
    return ByteEncoder(vocabulary=vocabulary)


def open_encoder(folder: Path, *, manifest: Manifest) -> Encoder:
    """The encoder of a prepared corpus.

    Raises:
        CorpusError: its file is missing or damaged.
    """
    if manifest.tokenizer is not None:
        verify(folder / manifest.tokenizer.file, sha256=manifest.tokenizer.sha256)
    return saved_encoder(folder, corpus=manifest.declaration, vocabulary=manifest.vocabulary)


def _ones(count: int, *, vocabulary: int) -> np.ndarray:
    return np.concatenate([np.ones(count, np.int64), np.zeros(vocabulary - count, np.int64)])
