"""The whole network: embedding, positions, blocks, final norm, head.

The invariant: a parameter's name says where it stands (`blocks.3.attention.query.weight`) and does not depend
on what the other slots hold.

Legend: B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

from torch import Tensor, nn

from knockout.declare.architecture import Architecture, at_layer
from knockout.model.block import Block, build_block
from knockout.model.cache import Cache
from knockout.model.documents import Documents
from knockout.model.embedding import build_embedding, build_head
from knockout.model.initialise import logit_factor
from knockout.model.norm import build_final_norm
from knockout.model.position import build_head_positions, build_position
from knockout.model.scores import Prefix


class Prediction(NamedTuple):
    """What the network says about every next token, and what its parts ask of the optimiser."""

    logits_BTV: Tensor
    auxiliary_loss: Tensor
    """Scalar, to be added to the training loss: the mixtures' weighted balance losses, 0 without any."""


class Network(nn.Module):
    """One stack of blocks from tokens to logits; make one with `build`."""

    def __init__(self, architecture: Architecture, *, make_block: Callable[..., Block] = build_block) -> None:
        super().__init__()
        self.architecture = architecture
        self.embedding = build_embedding(architecture)
        self.position = build_position(architecture)
        self.dropout = nn.Dropout(architecture.dropout)
        layers = [at_layer(architecture, layer=layer) for layer in range(architecture.depth)]
        positions = build_head_positions(layers)
        blocks = zip(layers, positions, strict=True)
        self.prefix = Prefix()
        self.blocks = nn.ModuleList(make_block(layer, position=position, prefix=self.prefix) for layer, position in blocks)
        self.norm = build_final_norm(architecture)
        self.head = build_head(architecture)
        self.logit_factor = logit_factor(architecture)

    def forward(
        self, tokens_BT: Tensor, *, cache: Cache | None = None, prefix: int = 0, documents: Documents | None = None
    ) -> Prediction:
        """tokens_BT (int64, 0 ... V - 1) to the prediction of the token after each.

        With a cache, tokens_BT are those after the ones that it remembers, and it is extended by them. The first
        `prefix` tokens are seen by all others, those before them too; with a cache they come in its first call.
        `documents` are those of all tokens so far: none is reached by what stands in another, and positions that are added
        to the stream are counted from its first token. Rotary positions and ALiBi need no counting anew: only distances
        within a document show in its scores.

        Raises ValueError for more tokens than there are learned positions. Dropout, where declared and in
        training mode, draws from torch's global generator.
        """
        offset = 0 if cache is None else cache.length
        self.prefix.num_tokens = prefix
        x_BTD = self.embed(tokens_BT, offset=offset, documents=documents)
        for index, block in enumerate(self.blocks):
            x_BTD = block(x_BTD, cache=None if cache is None else cache.layers[index], documents=documents)
        if cache is not None:
            cache.length += tokens_BT.shape[1]
        return self.predict(x_BTD, blocks=self.blocks)

    def embed(self, tokens_BT: Tensor, *, offset: int = 0, documents: Documents | None = None) -> Tensor:
        """tokens_BT, the first of which stands at position `offset`, to the stream x_BTD before the first block."""
        return self.dropout(self.position(self.embedding(tokens_BT), offset=offset, documents=documents))

    def predict(self, x_BTD: Tensor, *, blocks: Iterable[nn.Module]) -> Prediction:
        """The stream after the last block to the prediction, with what the blocks ask of the optimiser."""
        logits_BTV = self.head(self.norm(x_BTD) * self.logit_factor, self.embedding.weight)
        auxiliary_loss = self.embedding.weight.new_zeros(())
        for block in blocks:
            loss = cast("Block", block).take_auxiliary_loss()
            auxiliary_loss = auxiliary_loss if loss is None else auxiliary_loss + loss
        return Prediction(logits_BTV, auxiliary_loss)

    def new_cache(self, batch: int, *, capacity: int) -> Cache:
        """An empty cache for `batch` sequences of at most `capacity` tokens, on the weights' device and in their dtype.

        Raises ValueError when the network is not causal: what it has read would change with every later token.
        """
        if not self.architecture.causal:
            raise ValueError("only a causal network can reuse what it has read; without a mask it needs all tokens anew")
        like = self.embedding.weight
        caches = (
            cast("Block", block).new_cache(batch, capacity=capacity, device=like.device, dtype=like.dtype)
            for block in self.blocks
        )
        return Cache(tuple(caches))
