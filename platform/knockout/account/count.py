"""Everything that can be said about an architecture's cost without building it.

The invariant: the parts add up to the total, and both equal the built network's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from knockout.account.attention import attention_cost
from knockout.account.cache import CacheBytes, layer_cache
from knockout.account.cost import Cost
from knockout.account.embedding import embedding_cost, frozen_parameters, head_cost, position_cost, spared_flops
from knockout.account.feed_forward import feed_forward_cost
from knockout.account.norm import block_norm_cost, final_norm_cost
from knockout.account.skeleton import Stack, cross_attention_cost, in_window, stacks
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
    """FLOPs a token, 2 a multiply-add. Training is 3 x forward, since backward does every product twice; a frozen table
    that is the head too is spared one. Where nothing that is trained comes before the first products (a frozen table, no
    learned positions, no norm between), backward needs no gradient of their input; it is counted all the same."""

    forward: int
    training: int


@dataclass(frozen=True)
class KvCache:
    """What all blocks remember, in bytes: what a token adds while no window drops one, and a batch's at the context."""

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
    """One entry a block, from the first to the last; in an encoder-decoder those of the first stack come first."""
    flops_per_token: Flops
    kv_cache: KvCache
    bytes: Bytes

    def to_dict(self) -> dict[str, Any]:
        """Plain nested numbers under `parameters`, `flops_per_token`, `kv_cache` and `bytes`."""
        return {key: value for key, value in asdict(self).items() if key != "per_layer"}


@dataclass(frozen=True)
class _Layer:
    """What one block's parts cost."""

    attention: Cost
    feed_forward: Cost
    norm: Cost

    @classmethod
    def of(cls, layer: Architecture, *, stack: Stack, context: int) -> _Layer:
        attention = attention_cost(layer, context=stack.num_tokens) + cross_attention_cost(layer, stack=stack)
        return cls(
            in_window(attention, stack=stack, context=context),
            in_window(feed_forward_cost(layer), stack=stack, context=context),
            block_norm_cost(layer),
        )

    @property
    def block(self) -> Cost:
        return self.attention + self.feed_forward + self.norm

    @property
    def parameters(self) -> LayerParameters:
        return LayerParameters(
            total=self.block.parameters,
            active=self.block.active,
            attention=self.attention.parameters,
            feed_forward=self.feed_forward.parameters,
            norm=self.norm.parameters,
        )


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
    to token. In an encoder-decoder the window's prefix passes through one stack and the rest through the other,
    so FLOPs a token are the window's over its tokens, rounded; its cache is the second stack's.
    """
    context = architecture.context if context is None else context
    found = stacks(architecture, context=context)
    layers = [_Layer.of(layer, stack=stack, context=context) for stack in found for layer in stack.layers]
    blocks = found[-1].layers
    caches = (layer_cache(block, context=context, number_bytes=cache_bytes) for block in blocks)
    cache = sum(caches, start=CacheBytes(0, 0))
    embedding, position, head = (
        embedding_cost(architecture),
        position_cost(architecture),
        in_window(head_cost(architecture), stack=found[-1], context=context),
    )
    final_norm = final_norm_cost(architecture) * len(found)
    whole = sum((layer.block for layer in layers), start=embedding + position + final_norm + head)
    trained = whole.parameters - frozen_parameters(architecture)
    spared = in_window(Cost(flops_per_token=spared_flops(architecture)), stack=found[-1], context=context).flops_per_token
    return Account(
        parameters=Parameters(
            total=whole.parameters,
            active=whole.active,
            embedding=embedding.parameters,
            position=position.parameters,
            attention=sum(layer.attention.parameters for layer in layers),
            feed_forward=sum(layer.feed_forward.parameters for layer in layers),
            norm=sum(layer.norm.parameters for layer in layers) + final_norm.parameters,
            head=head.parameters,
        ),
        per_layer=tuple(layer.parameters for layer in layers),
        flops_per_token=Flops(forward=whole.flops_per_token, training=3 * whole.flops_per_token - spared),
        kv_cache=KvCache(bytes_per_token=cache.per_token, bytes=cache.total * batch),
        bytes=Bytes(weights=whole.parameters * weight_bytes, optimizer=trained * ADAM_BYTES),
    )
