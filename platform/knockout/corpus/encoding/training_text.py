"""What a tokenizer may learn from: the training documents, in the order of their hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from knockout.corpus.text import MAX_CHARACTER_BYTES, pieces


@dataclass(frozen=True)
class TrainingText:
    """The training documents; they are read anew for each sample, and no further than it reaches."""

    documents: Callable[[], Iterator[bytes]]
    num_bytes: int
    """Bytes of all the documents."""

    def take(self, at_most: int) -> list[bytes]:
        """Documents in order up to `at_most` (≥ 4) bytes; the last is cut, after a line end if any."""
        taken: list[bytes] = []
        room = at_most
        for document in self.documents():
            taken.append(pieces(document, limit=max(room, MAX_CHARACTER_BYTES))[0])
            room -= len(document)
            if room <= 0:
                break
        return taken
