"""The space of hashes cut into ranges, each of which one task encodes.

The invariant: the cut follows from how many bytes lie where, so it depends on contents alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from knockout.corpus.preparing.runs import HASHES, evenly

NUM_BUCKETS = 256
"""Stretches of the space of hashes for which bytes are counted."""
MAX_RANGE_BYTES = 32 * 2**20
MIN_RANGE_BYTES = 2 * 2**20
USUAL_RANGES = 16
"""Ranges that a corpus has where these limits allow it: enough for cores to share."""
STEP_BYTES = 4 * 2**20
"""Text that is held and encoded at a time."""


@dataclass(frozen=True)
class Range:
    """Places from low to before high, and how many bytes lie there."""

    low: int
    high: int
    num_bytes: int

    def steps(self) -> Sequence[tuple[int, int]]:
        """The range in equal parts of about STEP_BYTES."""
        return evenly(max(1, -(-self.num_bytes // STEP_BYTES)), low=self.low, high=self.high)


def range_bytes(num_bytes: int) -> int:
    """How much text one range of a corpus of `num_bytes` holds."""
    return min(max(num_bytes // USUAL_RANGES, MIN_RANGE_BYTES), MAX_RANGE_BYTES)


def cut(bytes_by_bucket: Sequence[int], *, at_most: int) -> list[Range]:
    """All places as ranges of up to about `at_most` bytes; full buckets are cut evenly, light ones put together."""
    edges = evenly(NUM_BUCKETS)
    ranges: list[Range] = []
    start, held = 0, 0
    for (low, high), size in zip(edges, bytes_by_bucket, strict=True):
        if held and held + size > at_most:
            ranges.append(Range(start, low, held))
            start, held = low, 0
        if size > at_most:
            parts = evenly(-(-size // at_most), low=start, high=high)
            ranges += [Range(*part, num_bytes=size // len(parts)) for part in parts]
            start = high
        else:
            held += size
    if start < HASHES:
        ranges.append(Range(start, HASHES, held))
    return ranges
