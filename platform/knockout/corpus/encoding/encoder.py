"""What turns documents into tokens, and back.

The invariant: encoding loses nothing. Each token but end-of-text stands for a fixed number of raw bytes,
and a document's tokens stand for exactly its bytes. End-of-text is put in by number: no text can become it.

Shapes: N tokens of one document, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import final

import numpy as np

from knockout.errors import CorpusError

BLOCK_TOKENS = 2**20
"""Tokens of a long document that are turned into wider numbers at a time."""


class Encoder(ABC):
    """Turns documents into tokens, and back."""

    end_of_text: int
    token_bytes_V: np.ndarray
    """Raw bytes of each token, int64."""
    unit_bytes = 1
    """Bytes of a document's content that count as one raw byte."""
    file: str | None = None
    """Name of the file that it was opened from, if it needs one."""

    @abstractmethod
    def encode(self, documents: list[bytes]) -> list[np.ndarray]:
        """Each document's tokens [N], without end-of-text."""

    @property
    def num_known(self) -> int:
        """Tokens from this number on stand for nothing, whatever the vocabulary's size; end-of-text is the last known."""
        return self.end_of_text + 1

    @final
    def num_bytes(self, tokens_N: np.ndarray) -> int:
        """Raw bytes that tokens stand for."""
        return sum(int(self.token_bytes_V[block].sum()) for block in blocks(tokens_N))

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


def blocks(tokens_N: np.ndarray) -> Iterator[np.ndarray]:
    """A document's tokens, at most BLOCK_TOKENS of them at a time."""
    return (tokens_N[start : start + BLOCK_TOKENS] for start in range(0, len(tokens_N), BLOCK_TOKENS))
