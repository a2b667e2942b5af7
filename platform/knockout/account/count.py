"""Everything that can be said about an architecture's cost without building it.

The invariant: the parts add up to the total, and both equal the built network's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from knockout.account.attention import attention_cost, cached_values_per_token
from knockout.account.cost import Cost
from knockout.account.embedding import embedding_cost, head_cost, position_cost
from knockout.account.feed_forward import feed_forward_cost
from knockout.account.norm import block_norm_cost, final_norm_cost
from knockout.declare.architecture import Architecture

ADAM_BYTES = 8
"""Two moments a parameter, float32 each (Kingma & Ba 2015, algorithm 1)."""


@dataclass(frozen=True)
class Parameters:
    """Numbers of parameters; `active` leaves out the experts that a token does not go to."""

    total: int
    active: int
    embedding: int
    position: int
    attention: int
    feed_forward: int
    norm: int
    head: int


@dataclass(frozen=True)
class LayerParameters:
    """Numbers of parameters in one block."""

    total: int
    active: int
    attention: int
    feed_forward: int
    norm: int


@dataclass(frozen=True)
class Flops:
    """FLOPs a token, 2 a multiply-add. Training is 3 x forward: backward does every product twice."""

    forward: int
    training: int


@dataclass(frozen=True)
class KvCache:
    """Keys and values of all blocks in bytes: a token's, and the whole batch's at the context."""

    bytes_per_token: int
    bytes: int


@dataclass(frozen=True)
class Bytes:
    """Bytes of the weights and of Adam's two float32 moments; gradients and master copies not counted."""

    weights: int
    optimizer: int


@dataclass(frozen=True)
class Account:
    """What an architecture holds, computes and stores."""

    parameters: Parameters
    per_layer: tuple[LayerParameters, ...]
    """One entry a block, from the first to the last."""
    flops_per_token: Flops
    kv_cache: KvCache
    bytes: Bytes

    def to_dict(self) -> dict[str, Any]:
        """Plain nested numbers under `parameters`, `flops_per_token`, `kv_cache` and `bytes`."""
        return {key: value for key, value in asdict(self).items() if key != "per_layer"}


def count(
    architecture: Architecture,
    *,
    context: int | None = None,
    batch: int = 1,
    weight_bytes: int = 2,
    cache_bytes: int = 2,
) -> Account:
    """The account of `architecture` at `context` tokens (by default its own), for `batch` sequences.

    FLOPs count matrix products only, at 2 a multiply-add (Kaplan et al. 2020, section 2.1), with attention's
    scores and weighted values over the full context for every token (Chowdhery et al. 2022, appendix B);
    lookups, norms, activations, softmax and additions are not counted. So `forward` times tokens equals
    torch's FlopCounterMode. `weight_bytes` and `cache_bytes` are bytes a number: 2 for float16 and bfloat16,
    4 for float32. The cache is what the keys and values take; only a causal network can reuse them from token
    to token.
    """
    context = architecture.context if context is None else context
    depth = architecture.depth
    attention = attention_cost(architecture, context=context)
    feed_forward, norm = feed_forward_cost(architecture), block_norm_cost(architecture)
    embedding, position, head = (
        embedding_cost(architecture),
        position_cost(architecture),
        head_cost(architecture),
    )
    block = attention + feed_forward + norm
    final_norm = final_norm_cost(architecture)
    whole = embedding + position + block * depth + final_norm + head
    per_token = cached_values_per_token(architecture) * cache_bytes
    return Account(
        parameters=Parameters(
            total=whole.parameters,
            active=whole.active,
            embedding=embedding.parameters,
            position=position.parameters,
            attention=attention.parameters * depth,
            feed_forward=feed_forward.parameters * depth,
            norm=norm.parameters * depth + final_norm.parameters,
            head=head.parameters,
        ),
        per_layer=(_layer(attention, feed_forward, norm),) * depth,
        flops_per_token=Flops(forward=whole.flops_per_token, training=3 * whole.flops_per_token),
        kv_cache=KvCache(bytes_per_token=per_token, bytes=per_token * context * batch),
        bytes=Bytes(weights=whole.parameters * weight_bytes, optimizer=whole.parameters * ADAM_BYTES),
    )


def _layer(attention: Cost, feed_forward: Cost, norm: Cost) -> LayerParameters:
    block = attention + feed_forward + norm
    return LayerParameters(
        total=block.parameters,
        active=block.active,
        attention=attention.parameters,
        feed_forward=feed_forward.parameters,
        norm=norm.parameters,
    )
