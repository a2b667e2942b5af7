"""Which tokens of a window are one document, for networks that read every document by itself.

The invariant: an end-of-text token belongs to the document that it ends, and all that is said here of a token follows from
the borders up to it; so a network that keeps to it computes a document as if it stood alone.

Legend: B windows, T new tokens, S tokens that can be read (those that a cache holds come first), N chunks, C tokens of a
chunk.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Documents:
    """The documents of some windows; every method is asked about their last `num_tokens` tokens, the new ones."""

    number_BS: Tensor
    """The document of each token, counted from 0 in each window; int64."""
    position_BS: Tensor
    """Tokens of the same document that stand before it in the window; int64."""

    def positions_BT(self, num_tokens: int) -> Tensor:
        """Where each new token stands in its document."""
        return self.position_BS[:, -num_tokens:]

    def same_B1TS(self, num_tokens: int, *, num_keys: int) -> Tensor:
        """True where a new token and one of the last `num_keys` tokens are of one document."""
        number_BT, number_BS = self.number_BS[:, -num_tokens:], self.number_BS[:, -num_keys:]
        return (number_BT[:, :, None] == number_BS[:, None, :]).unsqueeze(1)

    def first_BT(self, num_tokens: int) -> Tensor:
        """True at the first token of each document: nothing that was read before reaches it."""
        return self.positions_BT(num_tokens) == 0

    def split(self, num_windows: int) -> list[Documents]:
        """Those of at most so many windows at a time."""
        parts = zip(self.number_BS.split(num_windows), self.position_BS.split(num_windows), strict=True)
        return [Documents(number_BS, position_BS) for number_BS, position_BS in parts]


@dataclass(frozen=True, eq=False)
class Chunks:
    """Borders as a recurrence in chunks meets them, when a state is carried from chunk to chunk."""

    border_BNC: Tensor
    """How many documents have begun in the chunk up to each token, itself included."""

    @property
    def same_B1NCC(self) -> Tensor:
        """True for two tokens of one document."""
        return (self.border_BNC.unsqueeze(-1) == self.border_BNC.unsqueeze(-2)).unsqueeze(1)

    @property
    def reads_B1NC1(self) -> Tensor:
        """True where a token's document began before the chunk, so that it reads the state that comes in."""
        return (self.border_BNC == 0)[:, None, :, :, None]

    @property
    def leaves_B1NC1(self) -> Tensor:
        """True where a token's document goes on to the chunk's end, so that it is in the state that goes out."""
        return (self.border_BNC == self.border_BNC[:, :, -1:])[:, None, :, :, None]

    @property
    def passes_BN(self) -> Tensor:
        """True where the state that comes in goes out too: no document begins in the chunk."""
        return self.border_BNC[:, :, -1] == 0


def chunks_of(first_BT: Tensor, *, size: int) -> Chunks:
    """The borders of tokens in chunks of `size`, from where documents begin; the last chunk's missing tokens begin none."""
    filled_BT = F.pad(first_BT.long(), (0, -first_BT.shape[1] % size))
    return Chunks(filled_BT.unflatten(1, (-1, size)).cumsum(-1))


def documents_in(tokens_BS: Tensor, *, end_of_text: int | None) -> Documents | None:
    """The documents of windows whose tokens are tokens_BS; None without borders, where all of a window is one document.

    `end_of_text` is the token that ends a document, None for a network that reads on across them. On a GPU, which would
    have to be waited for, it is not looked whether there are borders.
    """
    if end_of_text is None:
        return None
    ended_BS = tokens_BS == end_of_text
    first_BS = F.pad(ended_BS[:, :-1], (1, 0))
    if tokens_BS.device.type == "cpu" and not first_BS.any():
        return None
    place_S = torch.arange(tokens_BS.shape[1], device=tokens_BS.device)
    start_BS = torch.where(first_BS, place_S, 0).cummax(dim=1).values
    return Documents(first_BS.long().cumsum(1), place_S - start_BS)
