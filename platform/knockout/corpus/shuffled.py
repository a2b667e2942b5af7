"""Tokens in a random order: a control in which nothing but their frequencies is left to learn.

The invariant: the order is a fixed permutation, made of integer arithmetic alone, so that every run sees the same shuffled
text, and each token stands in it as often as in the text itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from knockout.corpus.order import keys_of, permute
from knockout.corpus.reading import Split


@dataclass(frozen=True, eq=False)
class ShuffledSplit(Split):
    """A split, read through a permutation of its positions."""

    def gather(self, starts_B: np.ndarray, *, length: int) -> np.ndarray:
        """Rows of `length` tokens from each start of the shuffled text, int64 [B, length].

        Raises:
            CorpusError: a row would reach outside the split.
        """
        for start in starts_B.tolist():
            self.check(start, start + length)
        positions_N = shuffled_places((starts_B[:, None] + np.arange(length)).ravel(), size=self.num_tokens)
        shards_N = np.searchsorted(self.firsts, positions_N, side="right") - 1
        tokens_N = np.empty(len(positions_N), np.int64)
        for shard in np.unique(shards_N):
            here_N = shards_N == shard
            tokens_N[here_N] = self.shards[shard][positions_N[here_N] - self.firsts[shard]]
        return tokens_N.reshape(len(starts_B), length)


def shuffled(split: Split) -> ShuffledSplit:
    """The split with its tokens in a random order."""
    return ShuffledSplit(split.manifest, split.name, split.shards, split.firsts)


def shuffled_places(places_N: np.ndarray, *, size: int) -> np.ndarray:
    """Where tokens at these places of a shuffled text of `size` tokens stand in the text itself, int64 [N]."""
    return permute(places_N.astype(np.uint64), size=size, keys=keys_of("knockout shuffled tokens")).astype(np.int64)
