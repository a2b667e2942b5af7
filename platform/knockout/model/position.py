"""Where a token stands: what is added to the stream, and what is done to queries, keys and scores.

The invariant: fixed tables are buffers that are never saved; only learned positions have a longest sequence.

Legend: B batch, T tokens, D width, P pairs (half a width).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from knockout.declare import parts as declared
from knockout.declare.architecture import Architecture, head_layout, rotary_width
from knockout.declare.parts.attention import Scores
from knockout.model.documents import Documents
from knockout.model.head_position import AlibiPosition, HeadPosition
from knockout.model.rotary import RotaryPosition, pair_angles_TP, pair_frequencies_P

SINUSOIDAL_BASE = 10000.0


class StreamPosition(nn.Module):
    """Acts on the embedded tokens; this one leaves them as they are.

    With documents, a token's position is its place in its own (Krell et al. 2021, "Efficient Sequence Packing without
    Cross-contamination", section 3.2): else what stands before a document would show in it.
    """

    def forward(self, x_BTD: Tensor, *, offset: int = 0, documents: Documents | None = None) -> Tensor:
        """x_BTD, whose first token stands at position `offset` of its sequence, with positions added."""
        return x_BTD


class LearnedPosition(StreamPosition):
    """Adds a trained row a position."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(context, width))

    def forward(self, x_BTD: Tensor, *, offset: int = 0, documents: Documents | None = None) -> Tensor:
        """x_BTD with positions added. Raises ValueError for more tokens than there are positions."""
        end, num_positions = offset + x_BTD.shape[1], self.weight.shape[0]
        if end > num_positions:
            raise ValueError(f"a sequence of {end} tokens is longer than the {num_positions} learned positions")
        if documents is None:
            return x_BTD + self.weight[offset:end]
        return x_BTD + F.embedding(documents.positions_BT(x_BTD.shape[1]), self.weight)


class SinusoidalPosition(StreamPosition):
    """Adds sin at even and cos at odd units (Vaswani et al. 2017, section 3.5)."""

    table_TD: Tensor

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.register_buffer("table_TD", sinusoids_TD(context, width=width), persistent=False)

    def forward(self, x_BTD: Tensor, *, offset: int = 0, documents: Documents | None = None) -> Tensor:
        """x_BTD, of any length, with positions added."""
        num_tokens, width = x_BTD.shape[1:]
        end = offset + num_tokens
        if documents is not None:
            known = end <= self.table_TD.shape[0]
            table_SD = self.table_TD if known else sinusoids_TD(end, width=width).to(x_BTD)
            return x_BTD + F.embedding(documents.positions_BT(num_tokens), table_SD)
        table_TD = self.table_TD[offset:end]
        if end > self.table_TD.shape[0]:
            table_TD = sinusoids_TD(num_tokens, width=width, offset=offset).to(x_BTD)
        return x_BTD + table_TD


def sinusoids_TD(num_tokens: int, *, width: int, offset: int = 0) -> Tensor:
    """sin(angle) at unit 2p and cos(angle) at unit 2p + 1, float64, in [-1, 1]; the first row is position `offset`."""
    frequencies_P = pair_frequencies_P(width, base=SINUSOIDAL_BASE)
    angles_TP = pair_angles_TP(num_tokens, frequencies_P=frequencies_P, offset=offset)
    return torch.stack((angles_TP.sin(), angles_TP.cos()), dim=-1).flatten(1)


def build_position(architecture: Architecture) -> StreamPosition:
    """What is added to the embedded tokens."""
    match architecture.position:
        case declared.LearnedPosition():
            return LearnedPosition(architecture.context, architecture.width)
        case declared.SinusoidalPosition():
            return SinusoidalPosition(architecture.context, architecture.width)
        case _:
            return StreamPosition()


def build_head_position(architecture: Architecture) -> HeadPosition:
    """What is done to queries, keys and scores."""
    width, layout = rotary_width(architecture), head_layout(architecture)
    match architecture.position:
        case declared.RotaryPosition(base=base, scaling=scaling) if width is not None:
            return RotaryPosition(architecture.context, width, base=base, scaling=scaling)
        case declared.AlibiPosition() if layout is not None and isinstance(architecture.attention, Scores):
            return AlibiPosition(layout.num_heads)
        case _:
            return HeadPosition()


def build_head_positions(layers: Iterable[Architecture]) -> list[HeadPosition]:
    """One for each layer; layers whose heads are alike share it, and with it its tables."""
    shared: dict[object, HeadPosition] = {}
    found = []
    for layer in layers:
        key = rotary_width(layer), head_layout(layer), isinstance(layer.attention, Scores)
        if key not in shared:
            shared[key] = build_head_position(layer)
        found.append(shared[key])
    return found
