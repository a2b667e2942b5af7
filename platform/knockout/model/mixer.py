"""What stands in the attention slot: a part through which tokens reach one another.

The invariant: with a cache, a mixer's input holds only new tokens, and its output is what the same tokens would have
got in one pass over the whole sequence.

Legend: B batch, T tokens, D width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from knockout.model.cache import LayerCache
from knockout.model.documents import Documents

C = TypeVar("C", bound=LayerCache)


class TokenMixer(nn.Module, ABC, Generic[C]):
    """Maps x_BTD to y_BTD across positions; C is the kind of cache that it reads and extends."""

    @abstractmethod
    def forward(self, x_BTD: Tensor, *, cache: C | None = None, documents: Documents | None = None) -> Tensor:
        """x_BTD to y_BTD. With a cache, x holds the tokens after those that it remembers, and the cache is extended.

        With documents, no token reads one of another document than its own.
        """

    @abstractmethod
    def new_cache(self, batch: int, *, capacity: int, device: torch.device, dtype: torch.dtype) -> C:
        """An empty cache for `batch` sequences of at most `capacity` tokens."""
