"""One split of a prepared corpus as one long row of tokens, wherever its shards begin and end.

The invariant: reading copies only the tokens that are asked for; a split of any size costs no memory.

Shapes: B rows, L tokens in a row.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from knockout.corpus.manifest import Manifest, read_manifest
from knockout.corpus.shards import map_shard
from knockout.errors import CorpusError


@dataclass(frozen=True, eq=False)
class Split:
    """Tokens of one side of a corpus."""

    manifest: Manifest
    name: str
    shards: tuple[np.ndarray, ...]
    firsts: tuple[int, ...]
    """Position of each shard's first token, and at the end the number of tokens."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens, end-of-text included."""
        return self.firsts[-1]

    def gather(self, starts_B: np.ndarray, *, length: int) -> np.ndarray:
        """Rows of `length` tokens from each start, int64 [B, length].

        Raises:
            CorpusError: a row would reach outside the split.
        """
        starts = starts_B.tolist()
        if starts:
            self.check(min(starts), max(starts) + length)
        rows_BL = np.empty((len(starts), length), np.int64)
        for row, start in enumerate(starts):
            shard = bisect_right(self.firsts, start) - 1
            first = start - self.firsts[shard]
            part = self.shards[shard][first : first + length]
            if len(part) == length:
                rows_BL[row] = part
            else:
                self._copy(rows_BL[row], start)
        return rows_BL

    def check(self, start: int, end: int) -> None:
        """Refuse positions start … end - 1 that reach outside the split; raises CorpusError."""
        if start < 0 or end > self.num_tokens:
            raise CorpusError(f"the {self.name} split has {self.num_tokens:,} tokens; {start:,} to {end:,} were asked of it")

    def _copy(self, row_L: np.ndarray, start: int) -> None:
        end = start + len(row_L)
        shard = bisect_right(self.firsts, start) - 1
        while start < end:
            first, stop = self.firsts[shard], min(end, self.firsts[shard + 1])
            part = self.shards[shard][start - first : stop - first]
            row_L[len(row_L) - (end - start) :][: len(part)] = part
            start, shard = stop, shard + 1


def open_split(folder: Path, *, split: str) -> Split:
    """Map one split of the corpus prepared in `folder`; every shard is verified first.

    Raises:
        CorpusError: the manifest or a shard is missing or damaged, or there is no such split.
    """
    manifest = read_manifest(folder)
    entry = manifest.split(split)
    shards = tuple(map_shard(folder, entry=shard) for shard in entry.shards)
    return Split(manifest, split, shards, tuple(accumulate(map(len, shards), initial=0)))
