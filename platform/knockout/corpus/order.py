"""In which order a split's windows are visited.

The invariant: the order is a pure function of (number of tokens, context, seed), made of 64-bit integer
arithmetic alone, so that it is the same for every numpy, machine and process; each epoch visits each of its
windows once.

An epoch's permutation is a Feistel network over a rectangle rows × columns that just covers the windows,
with modular addition in place of XOR (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002);
places outside the windows walk on to the next place of their cycle. It takes no memory.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt

import numpy as np

from knockout.errors import CorpusError

NUM_ROUNDS = 6
BLOCK = 1024
"""Visits computed at a time; the last few blocks are remembered."""


@dataclass(frozen=True)
class Grid:
    """The windows of one epoch: `num_windows` of `context` tokens and one more to predict, side by side.

    The grid's offset differs between epochs, so that a token does not always stand at the same place in its
    window.
    """

    context: int
    num_windows: int
    num_offsets: int


def grid(num_tokens: int, *, context: int) -> Grid:
    """How many windows an epoch has; the same for each offset. Raises CorpusError when there is not one."""
    if num_tokens <= context:
        raise CorpusError(
            f"the split has {num_tokens:,} tokens, a window of {context:,} and one more does not fit: "
            "add text or lower the context"
        )
    num_windows = max(1, num_tokens // context - 1)
    return Grid(context, num_windows, min(context, num_tokens - num_windows * context))


def window_starts(windows: Grid, *, seed: int, first: int, count: int) -> np.ndarray:
    """Starts of the windows at places first … first + count - 1 of the whole training, int64 [count]."""
    pieces = []
    end = first + count
    while first < end:
        epoch, place = divmod(first, windows.num_windows)
        block, skip = divmod(place, BLOCK)
        starts = _block_starts(windows, seed, epoch, block)[skip : skip + end - first]
        pieces.append(starts)
        first += len(starts)
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


@lru_cache(maxsize=16)
def _block_starts(windows: Grid, seed: int, epoch: int, block: int) -> np.ndarray:
    keys = _keys(seed, epoch)
    places = np.arange(block * BLOCK, min((block + 1) * BLOCK, windows.num_windows), dtype=np.uint64)
    visits = permute(places, size=windows.num_windows, keys=keys[1:])
    starts = (visits * np.uint64(windows.context)).astype(np.int64) + keys[0] % windows.num_offsets
    starts.flags.writeable = False
    return starts


def _keys(seed: int, epoch: int) -> list[int]:
    """One key for the offset and one for each round."""
    return keys_of(f"knockout order {seed} {epoch}", count=NUM_ROUNDS + 1)


def keys_of(name: str, *, count: int = NUM_ROUNDS) -> list[int]:
    """64-bit keys of a named permutation, from BLAKE2b of the name."""
    digest = hashlib.blake2b(name.encode(), digest_size=8 * count).digest()
    return [int.from_bytes(digest[at : at + 8], "little") for at in range(0, len(digest), 8)]


def permute(places: np.ndarray, *, size: int, keys: list[int]) -> np.ndarray:
    """Where a permutation of 0 … size - 1 takes each of `places` (uint64)."""
    columns = isqrt(size - 1) + 1
    rows = -(-size // columns)
    walked = _network(places, rows=rows, columns=columns, keys=keys)
    while (outside := walked >= size).any():
        walked[outside] = _network(walked[outside], rows=rows, columns=columns, keys=keys)
    return walked


def _network(places: np.ndarray, *, rows: int, columns: int, keys: list[int]) -> np.ndarray:
    row, column = np.divmod(places, np.uint64(columns))
    for index, key in enumerate(keys):
        if index % 2:
            row = (row + _mix(column, key) % np.uint64(rows)) % np.uint64(rows)
        else:
            column = (column + _mix(row, key) % np.uint64(columns)) % np.uint64(columns)
    return row * np.uint64(columns) + column


def _mix(values: np.ndarray, key: int) -> np.ndarray:
    """SplitMix64's finaliser (Steele et al., "Fast splittable pseudorandom number generators", 2014)."""
    mixed = values + np.uint64(key)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
