"""Two stacks: one reads the prefix of the tokens in both directions, the other reads it and predicts the rest.

The invariant: the stack that predicts sees no later token than its own, and the other none after the prefix; so with a
prefix of one token the whole is a causal network of the next token.

Legend: B batch, T tokens, S tokens of the prefix, D width, H heads, K head width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import final

from torch import Tensor, nn

from knockout.declare.architecture import Architecture, encoder_layers
from knockout.model.attention_heads import split_heads
from knockout.model.block import BranchesInTurn, build_block
from knockout.model.cache import Cache, LayerCache
from knockout.model.documents import Documents
from knockout.model.head_position import HeadPosition
from knockout.model.linear import Linear
from knockout.model.network import Network, Prediction
from knockout.model.norm import build_final_norm, build_norm, build_output_norm
from knockout.model.position import build_head_positions
from knockout.model.residual import build_residual
from knockout.model.scores import Prefix, ScoreRule, attend


class CrossAttention(nn.Module):
    """Queries from one stream, keys and values from another (Vaswani et al. 2017, section 3.2.3); no positions."""

    def __init__(self, width: int, *, num_heads: int, bias: bool, dropout: float) -> None:
        super().__init__()
        self.head_width, self.dropout = width // num_heads, dropout
        self.rule = ScoreRule(causal=False, scale=self.head_width**-0.5)
        self.position = HeadPosition()
        self.query, self.key, self.value, self.output = (Linear(width, width, bias=bias) for _ in range(4))

    def forward(self, x_BTD: Tensor, *, source_BSD: Tensor) -> Tensor:
        """x_BTD and the source to what each token of x has read in it, y_BTD."""
        query_BHTK = split_heads(self.query(x_BTD), head_width=self.head_width)
        key_BHSK = split_heads(self.key(source_BSD), head_width=self.head_width)
        value_BHSK = split_heads(self.value(source_BSD), head_width=self.head_width)
        dropout = self.dropout if self.training else 0.0
        read_BHTK = attend(query_BHTK, key_BHSK, value_BHSK, rule=self.rule, bias=self.position.score_bias, dropout=dropout)
        return self.output(read_BHTK.transpose(1, 2).flatten(2))


@final
class CrossBlock(BranchesInTurn):
    """attention, then what the source says, then ffn, each with norms and a connection of its own."""

    def __init__(self, architecture: Architecture, *, position: HeadPosition, prefix: Prefix | None = None) -> None:
        super().__init__(architecture, position=position, prefix=prefix)
        self.cross = CrossAttention(
            architecture.width, num_heads=architecture.heads, bias=architecture.bias, dropout=architecture.dropout
        )
        self.cross_norm = build_norm(architecture)
        self.cross_output_norm = build_output_norm(architecture)
        self.cross_residual = build_residual(architecture)

    def forward(
        self,
        x_BTD: Tensor,
        *,
        cache: LayerCache | None = None,
        documents: Documents | None = None,
        source_BSD: Tensor | None = None,
    ) -> Tensor:
        """The stream before the block to the stream after it; the source is never absent, and is of one document."""
        assert source_BSD is not None, "a block of the second stack reads the first one's output"
        assert documents is None, "the source is not divided into documents"
        x_BTD = self._join_attention(x_BTD, cache=cache, documents=None)
        x_BTD = self.join(
            x_BTD,
            branch=partial(self._cross, source_BSD=source_BSD),
            norm=self.cross_norm,
            output_norm=self.cross_output_norm,
            connect=self.cross_residual,
        )
        return self._join_ffn(x_BTD)

    def _cross(self, x_BTD: Tensor, *, source_BSD: Tensor) -> Tensor:
        return self.dropout(self.cross(x_BTD, source_BSD=source_BSD))


@dataclass
class SourceCache(Cache):
    """Also remembers what the first stack has made of the prefix."""

    source_BSD: Tensor | None = None
    """None before the first tokens were read."""

    @property
    def num_bytes(self) -> int:
        """Bytes of all blocks and of the source."""
        return super().num_bytes + (0 if self.source_BSD is None else self.source_BSD.nbytes)


@final
class EncoderDecoder(Network):
    """`encoder` reads the prefix, `blocks` read it and all tokens from the prefix's last one on."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__(architecture, make_block=CrossBlock)
        layers = encoder_layers(architecture)
        blocks = zip(layers, build_head_positions(layers), strict=True)
        self.encoder = nn.ModuleList(build_block(layer, position=position) for layer, position in blocks)
        self.encoder_norm = build_final_norm(architecture)

    def forward(
        self, tokens_BT: Tensor, *, cache: Cache | None = None, prefix: int = 0, documents: Documents | None = None
    ) -> Prediction:
        """tokens_BT to the prediction of the token after each, from the prefix's last token on.

        The prefix is one token at least. With a cache, it comes in the first call, and later ones hold the tokens after.
        A window is one document.
        """
        assert documents is None, "there is one prefix in a window"
        if isinstance(cache, SourceCache) and cache.source_BSD is not None:
            return self._predict_rest(tokens_BT, source_BSD=cache.source_BSD, cache=cache, first=0)
        num_read = max(1, prefix)
        source_BSD = self.encode(tokens_BT[:, :num_read])
        if isinstance(cache, SourceCache):
            cache.source_BSD = source_BSD.detach()
        return self._predict_rest(tokens_BT, source_BSD=source_BSD, cache=cache, first=num_read - 1)

    def encode(self, tokens_BS: Tensor) -> Tensor:
        """What the first stack makes of a prefix, source_BSD."""
        x_BSD = self.embed(tokens_BS)
        for block in self.encoder:
            x_BSD = block(x_BSD)
        return self.encoder_norm(x_BSD)

    def new_cache(self, batch: int, *, capacity: int) -> SourceCache:
        """An empty cache for `batch` sequences of at most `capacity` tokens."""
        return SourceCache(super().new_cache(batch, capacity=capacity).layers)

    def _predict_rest(self, tokens_BT: Tensor, *, source_BSD: Tensor, cache: Cache | None, first: int) -> Prediction:
        offset = 0 if cache is None else cache.length
        x_BTD = self.embed(tokens_BT[:, first:], offset=offset + first)
        for index, block in enumerate(self.blocks):
            x_BTD = block(x_BTD, cache=None if cache is None else cache.layers[index], source_BSD=source_BSD)
        if cache is not None:
            cache.length += tokens_BT.shape[1]
        return self.predict(x_BTD, blocks=[*self.encoder, *self.blocks])
