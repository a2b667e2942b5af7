"""Documents to tokens, and back.

Only byte-pair encoding needs tokenizers, and imports it where it is used: `make gpu-check` prepares a corpus without it.
The invariant: encoding loses nothing. Each token but end-of-text stands for a fixed number of raw bytes,
and a document's tokens stand for exactly its bytes. End-of-text is put in by number: no text can become it.

Shapes: N tokens of one document, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np

from knockout.corpus.collect import TrainingText
from knockout.corpus.manifest import Manifest
from knockout.corpus.shards import token_dtype, verify
from knockout.corpus.text import pieces
from knockout.declare.corpus import Bpe, Bytes, Corpus, Identity
from knockout.declare.generators import Generator
from knockout.errors import CorpusError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"
NUM_BYTES = 256
PIECE_BYTES = 2**20
"""Longer documents are encoded in pieces, so that memory stays small; no token crosses a piece's end."""


class Encoder(ABC):
    """Turns documents into tokens."""

    end_of_text: int
    token_bytes_V: np.ndarray
    """Raw bytes of each token, int64."""
    unit_bytes = 1
    """Bytes of a document's content that count as one raw byte."""
    file: str | None = None
    """Name of the file that `save` writes."""

    @abstractmethod
    def encode(self, documents: list[bytes]) -> list[np.ndarray]:
        """Each document's tokens [N], without end-of-text."""

    @property
    def num_known(self) -> int:
        """Tokens from this number on stand for nothing, whatever the vocabulary's size; end-of-text is the last known."""
        return self.end_of_text + 1

    @final
    def decode(self, tokens_N: np.ndarray) -> bytes:
        """The content that tokens stand for; end-of-text stands for nothing.

        Raises:
            CorpusError: a token is unknown.
        """
        unknown = tokens_N[(tokens_N < 0) | (tokens_N >= self.num_known)]
        if unknown.size:
            raise CorpusError(f"token {unknown[0]} stands for nothing: this tokenizer knows 0 to {self.num_known - 1}")
        return self._content(tokens_N[tokens_N != self.end_of_text])

    @abstractmethod
    def _content(self, tokens_N: np.ndarray) -> bytes:
        """The content of known tokens, none of them end-of-text."""

    def save(self, folder: Path) -> None:  # noqa: B027
        """Write what `decode` needs; most need nothing."""


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


@final
class BpeEncoder(Encoder):
    """Byte-level byte-pair encoding; end-of-text is the last number, and unknown to the tokenizer."""

    file = TOKENIZER

    def __init__(self, tokenizer: Tokenizer, *, vocabulary: int) -> None:
        self.tokenizer = tokenizer
        self.end_of_text = vocabulary - 1
        self.token_bytes_V = np.zeros(vocabulary, np.int64)
        for token, number in tokenizer.get_vocab().items():
            self.token_bytes_V[number] = len(token)

    def encode(self, documents: list[bytes]) -> list[np.ndarray]:
        parts = [pieces(document, limit=PIECE_BYTES) for document in documents]
        texts = [piece.decode() for part in parts for piece in part]
        encoded = iter(self.tokenizer.encode_batch_fast(texts, add_special_tokens=False))
        dtype = token_dtype(len(self.token_bytes_V))
        return [np.concatenate([np.array(next(encoded).ids, dtype) for _ in part]) for part in parts]

    def _content(self, tokens_N: np.ndarray) -> bytes:
        return self.tokenizer.decode(tokens_N.tolist(), skip_special_tokens=False).encode()

    def save(self, folder: Path) -> None:
        self.tokenizer.save(str(folder / TOKENIZER))


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


def make_encoder(corpus: Corpus, *, vocabulary: int, text: TrainingText) -> Encoder:
    """The declared encoder; merges are learnt from `text`.

    Raises:
        CorpusError: the vocabulary is too small for the tokens, or larger than the text supports.
    """
    check_vocabulary(corpus, vocabulary=vocabulary)
    match corpus.tokenizer:
        case Bpe(sample_bytes=sample_bytes):
            tokenizer = _fit_bpe(text, sample_bytes=sample_bytes, vocabulary=vocabulary, name=corpus.corpus)
            return BpeEncoder(tokenizer, vocabulary=vocabulary)
        case Bytes() | Identity():
            return _fixed_encoder(corpus, vocabulary=vocabulary)


def open_encoder(folder: Path, *, manifest: Manifest) -> Encoder:
    """The encoder of a prepared corpus.

    Raises:
        CorpusError: its file is missing or damaged.
    """
    if manifest.tokenizer is not None:
        from tokenizers import Tokenizer

        path = folder / manifest.tokenizer.file
        verify(path, sha256=manifest.tokenizer.sha256)
        return BpeEncoder(Tokenizer.from_file(str(path)), vocabulary=manifest.vocabulary)
    return _fixed_encoder(manifest.declaration, vocabulary=manifest.vocabulary)


def _fixed_encoder(corpus: Corpus, *, vocabulary: int) -> Encoder:
    if isinstance(corpus.source, Generator):
        return SymbolEncoder(alphabet=corpus.source.alphabet, vocabulary=vocabulary)
    return ByteEncoder(vocabulary=vocabulary)


def _fit_bpe(text: TrainingText, *, sample_bytes: int, vocabulary: int, name: str) -> Tokenizer:
    """Learn merges from a sample, and from one twice as large for as long as it gives too few of them."""
    while True:
        tokenizer = _train_bpe(text.take(sample_bytes), vocabulary=vocabulary)
        reached = tokenizer.get_vocab_size() + 1
        if reached == vocabulary:
            return tokenizer
        if sample_bytes >= text.num_bytes:
            raise CorpusError(
                f"corpus {name}: its {text.num_bytes:,} bytes of training text support a vocabulary of at most "
                f"{reached:,}, not {vocabulary:,}: add text or lower the vocabulary"
            )
        sample_bytes *= 2


def _train_bpe(sample: list[bytes], *, vocabulary: int) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - 1,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    texts = (piece.decode() for document in sample for piece in pieces(document, limit=PIECE_BYTES))
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _ones(count: int, *, vocabulary: int) -> np.ndarray:
    return np.concatenate([np.ones(count, np.int64), np.zeros(vocabulary - count, np.int64)])
