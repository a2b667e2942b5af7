"""The closed form of what a token mixer remembers.

The invariant: equal to the bytes of the cache that the built mixer makes.
"""

from __future__ import annotations

from dataclasses import dataclass

from knockout.account.recurrent import cell_state, retention_state, state_space_state
from knockout.declare.architecture import Architecture, head_layout
from knockout.declare.parts import (
    CellMixer,
    LatentAttention,
    LinearAttention,
    RetentionMixer,
    SelectiveSsmMixer,
    SharedQkvAttention,
    WindowAttention,
)

STATE_BYTES = 4
"""Least bytes of a number in a state to which every token is added: float32."""


@dataclass(frozen=True)
class CacheBytes:
    """Bytes of one sequence's cache in one block."""

    per_token: int
    """What one more token adds, while nothing is dropped."""
    total: int
    """At the context asked for."""

    def __add__(self, other: CacheBytes) -> CacheBytes:
        return CacheBytes(self.per_token + other.per_token, self.total + other.total)


def layer_cache(architecture: Architecture, *, context: int, number_bytes: int) -> CacheBytes:
    """The cache of one block's token mixer for a sequence of `context` tokens, at `number_bytes` a number."""
    layout = head_layout(architecture)
    match architecture.attention:
        case LatentAttention(kv_rank=rank, rope_width=rope_width):
            return _grows(rank + rope_width, tokens=context, number_bytes=number_bytes)
        case LinearAttention() if layout is not None:
            return _state(architecture.width * (layout.head_width + 1), number_bytes=number_bytes)
        case SharedQkvAttention():
            return _grows(architecture.width, tokens=context, number_bytes=number_bytes)
        case CellMixer() as mixer:
            return CacheBytes(0, cell_state(mixer, width=architecture.width) * number_bytes)
        case SelectiveSsmMixer() as mixer:
            inputs, states = state_space_state(mixer, width=architecture.width)
            return CacheBytes(0, inputs * number_bytes) + _state(states, number_bytes=number_bytes)
        case RetentionMixer() as mixer:
            numbers = retention_state(mixer, width=architecture.width, heads=architecture.heads)
            return _state(numbers, number_bytes=number_bytes)
        case WindowAttention(window=window) if layout is not None:
            kept = min(context, window)
            return _grows(2 * layout.num_kv_heads * layout.head_width, tokens=kept, number_bytes=number_bytes)
        case _ if layout is not None:
            return _grows(2 * layout.num_kv_heads * layout.head_width, tokens=context, number_bytes=number_bytes)
        case _:
            return CacheBytes(0, 0)


def _grows(numbers_per_token: int, *, tokens: int, number_bytes: int) -> CacheBytes:
    per_token = numbers_per_token * number_bytes
    return CacheBytes(per_token, per_token * tokens)


def _state(numbers: int, *, number_bytes: int) -> CacheBytes:
    return CacheBytes(0, numbers * max(number_bytes, STATE_BYTES))
