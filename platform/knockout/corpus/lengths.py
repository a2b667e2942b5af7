"""How long documents are: counts that many documents share.

The invariant: memory does not grow with the number of documents. Lengths up to 4,095 are kept exactly, longer ones to 12
binary digits, so that a quantile is short by less than 1 part in 2,048.

Shapes: D documents.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

KEPT_BITS = 12
MAX_ROWS = 12
"""Rows of a histogram at most."""


@dataclass(eq=False)
class Lengths:
    """Counts of documents by their lengths in tokens, end-of-text not counted."""

    counts: Counter[int] = field(default_factory=Counter)
    total: int = 0
    least: int = 0
    most: int = 0

    @property
    def documents(self) -> int:
        """How many documents were added."""
        return sum(self.counts.values())

    def add(self, lengths_D: np.ndarray) -> None:
        """Count some documents."""
        if not len(lengths_D):
            return
        self.least = min(self.least, int(lengths_D.min())) if self.counts else int(lengths_D.min())
        self.most = max(self.most, int(lengths_D.max()))
        self.total += int(lengths_D.sum())
        dropped_D = np.maximum(np.frexp(lengths_D.astype(np.float64))[1] - KEPT_BITS, 0)
        different, times = np.unique(lengths_D >> dropped_D << dropped_D, return_counts=True)
        self.counts.update(dict(zip(different.tolist(), times.tolist(), strict=True)))

    def quantile(self, share: float) -> int:
        """The length that this share of the documents does not exceed."""
        wanted, passed = share * self.documents, 0
        for length in sorted(self.counts):
            passed += self.counts[length]
            if passed >= wanted:
                return max(length, self.least)
        return self.most

    def histogram(self) -> list[tuple[int, int, int]]:
        """First and last length of each row and its documents; each row's lengths are twice, or 4 times, … the last's."""
        if not self.counts:
            return []
        low, high = self.least.bit_length(), self.most.bit_length()
        step = -(-(high - low + 1) // MAX_ROWS)
        rows = []
        for bits in range(low, high + 1, step):
            first, last = 2 ** max(bits - 1, 0) if bits else 0, 2 ** (bits + step - 1) - 1
            rows.append((first, last, sum(n for length, n in self.counts.items() if first <= length <= last)))
        return rows
