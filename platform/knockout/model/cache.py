"""What a network remembers of the tokens it has read, so that the next one costs no second reading.

The invariant: a cache is made at its full size, so `num_bytes` is what it takes from the first token on; it holds no
gradient, and a mixer that reads it extends it in the same call.

Legend: B batch, S tokens kept, W width of a row; `...` are axes that a mixer needs between (its heads).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor


class LayerCache(ABC):
    """What one block's token mixer remembers; the mixer's `new_cache` makes it."""

    length: int = 0
    """Tokens read so far, which is the position of the next one."""

    @property
    @abstractmethod
    def tensors(self) -> Sequence[Tensor]:
        """All that is held."""

    @property
    def num_bytes(self) -> int:
        """Bytes of all that is held."""
        return sum(tensor.nbytes for tensor in self.tensors)


@final
class TokenCache(LayerCache):
    """One row a token in each of several tensors [B, ..., S, W]: keys and values, or what they are made from."""

    def __init__(self, *shapes: tuple[int, ...], capacity: int, device: torch.device, dtype: torch.dtype) -> None:
        """Room for `capacity` tokens; `shapes` are those of one token's rows, [B, ..., W]."""
        self.capacity = capacity
        self._rows = _empty_rows(shapes, num_rows=capacity, device=device, dtype=dtype)

    @property
    def tensors(self) -> Sequence[Tensor]:
        return self._rows

    def extend(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Take in the rows of new tokens, [B, ..., T, W] each, and give those of all tokens so far.

        Raises ValueError when there is no room for them.
        """
        start, end = self.length, self.length + new[0].shape[-2]
        if end > self.capacity:
            raise ValueError(f"a cache for {self.capacity} tokens has no room for {end}")
        for rows, added in zip(self._rows, new, strict=True):
            rows[..., start:end, :] = added.detach()
        self.length = end
        return tuple(rows[..., :end, :] for rows in self._rows)


@final
class WindowCache(LayerCache):
    """As TokenCache, but only the newest `window` tokens are kept, and any number can be read."""

    def __init__(self, *shapes: tuple[int, ...], window: int, device: torch.device, dtype: torch.dtype) -> None:
        """`shapes` are those of one token's rows, [B, ..., W]."""
        self.window = window
        self._rows = _empty_rows(shapes, num_rows=window, device=device, dtype=dtype)

    @property
    def tensors(self) -> Sequence[Tensor]:
        return self._rows

    def extend(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Take in the rows of new tokens, [B, ..., T, W] each, and give those kept before with the new ones."""
        kept = min(self.length, self.window)
        self.length += new[0].shape[-2]
        return tuple(self._slide(rows, added, kept=kept) for rows, added in zip(self._rows, new, strict=True))

    def _slide(self, rows: Tensor, added: Tensor, *, kept: int) -> Tensor:
        known = torch.cat((rows[..., :kept, :], added.detach().to(rows.dtype)), dim=-2)
        newest = known[..., -self.window :, :]
        rows[..., : newest.shape[-2], :] = newest
        return known


@final
class StateCache(LayerCache):
    """A recurrence's state: tensors whose size does not depend on how many tokens were read."""

    def __init__(self, *state: Tensor) -> None:
        """`state` is what the recurrence starts from."""
        self._state = tuple(tensor.detach().clone() for tensor in state)

    @property
    def tensors(self) -> Sequence[Tensor]:
        return self._state

    def advance(self, *state: Tensor, num_tokens: int) -> None:
        """Remember the state after `num_tokens` more tokens."""
        for held, new in zip(self._state, state, strict=True):
            held.copy_(new.detach())
        self.length += num_tokens


@dataclass
class Cache:
    """A network's memory: one entry a block, None where the block reads no other token."""

    layers: tuple[LayerCache | None, ...]
    length: int = 0
    """Tokens read so far."""

    @property
    def num_bytes(self) -> int:
        """Bytes of all blocks."""
        return sum(layer.num_bytes for layer in self.layers if layer is not None)


def _empty_rows(
    shapes: Sequence[tuple[int, ...]], *, num_rows: int, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    return tuple(torch.zeros(*shape[:-1], num_rows, shape[-1], device=device, dtype=dtype) for shape in shapes)
