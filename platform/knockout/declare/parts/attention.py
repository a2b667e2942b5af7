"""The slot `attention`: how tokens read one another."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from knockout.declare.base import Declaration, Positive, PositiveFloat
from knockout.declare.parts.recurrent import RecurrentMixer


def _word_or_number(value: object) -> str:
    """Which of the two a score scale was meant to be, so that a wrong one gets one message."""
    return "word" if isinstance(value, str) else "number"


ScoreScale = Annotated[
    Annotated[Literal["inverse_sqrt", "none"], Tag("word")] | Annotated[PositiveFloat, Tag("number")],
    Discriminator(_word_or_number),
]
QkNorm = Literal["none", "rms", "layer"]
Computation = Literal["fused", "explicit"]


class Scores(Declaration):
    """What every attention with a softmax over scores can set."""

    scale: ScoreScale = "inverse_sqrt"
    """Factor of the scores: inverse_sqrt, 1/sqrt(key width) (Vaswani et al. 2017); none, 1; or a number over 0."""
    computation: Computation = "fused"
    """fused: torch's kernel, which may never hold the scores. explicit: the score matrix is formed. Same values."""


class HeadScores(Scores):
    """What attention in plain heads can set besides."""

    qk_norm: QkNorm = "none"
    """Norm of every query and key over its head: none, rms or layer, each with a gain (Dehghani et al. 2023, section 2)."""


class MultiHeadAttention(HeadScores):
    """`heads` heads of width / heads each (Vaswani et al. 2017, section 3.2.2)."""

    kind: Literal["multi_head"] = "multi_head"
    causal: bool = True
    """Mask later tokens."""


class SingleHeadAttention(HeadScores):
    """One head of the full width; `heads` is not used."""

    kind: Literal["single_head"] = "single_head"
    causal: bool = True
    """Mask later tokens."""


class GroupedAttention(HeadScores):
    """Query heads in groups that share a key and a value head (Ainslie et al. 2023)."""

    kind: Literal["grouped"] = "grouped"
    kv_heads: Positive
    """Number of key and value heads, a divisor of `heads`; 1 is multi-query attention (Shazeer 2019)."""
    causal: bool = True
    """Mask later tokens."""


class SharedQkvAttention(HeadScores):
    """Heads whose queries, keys and values are one and the same projection."""

    kind: Literal["shared_qkv"] = "shared_qkv"
    causal: bool = True
    """Mask later tokens."""


class LatentAttention(Scores):
    """Keys and values made from one small vector a token, which is all that is cached (DeepSeek-AI 2024, section 2.1).

    A head's query and key are `nope_width` units that no position turns, and `rope_width` units that rotary positions
    turn; the key's rope units are the same for all heads. Both small vectors are RMS-normed; the maps that expand them
    have no biases.
    """

    kind: Literal["latent"] = "latent"
    q_rank: Positive | None = None
    """Width of the vector that queries are made from, in units; none: queries come from the stream itself."""
    kv_rank: Positive
    """Width of the vector that keys and values are made from, in units."""
    nope_width: Positive
    """Units of a head's query and key without position."""
    rope_width: Positive
    """Units of a head's query and key for rotary positions; even where those are used."""
    value_width: Positive
    """Units of a head's value."""
    causal: bool = True
    """Mask later tokens."""


class WindowAttention(HeadScores):
    """Each token reads itself and the `window` - 1 before it (Beltagy et al. 2020; Jiang et al. 2023, section 2)."""

    kind: Literal["window"] = "window"
    window: Positive
    """Tokens that one token can read, itself included; 2 or more."""
    kv_heads: Positive | None = None
    """Number of key and value heads, a divisor of `heads`; by default all of them."""
    causal: ClassVar[bool] = True


class LinearAttention(Declaration):
    """Heads with elu(q) + 1 and elu(k) + 1 in place of the softmax (Katharopoulos et al. 2020, equations 5, 7 and 9 - 12).

    There are no scores to scale, normalise or drop.
    """

    kind: Literal["linear"] = "linear"
    causal: bool = True
    """Mask later tokens."""
    chunk: ClassVar[int] = 64
    """Tokens whose products are formed at once; between chunks a state is carried. No value depends on it."""


class NoAttention(Declaration):
    """No exchange between tokens: the branch is absent, and its norm with it."""

    kind: Literal["none"] = "none"
    causal: ClassVar[bool] = True


Attention = Annotated[
    MultiHeadAttention
    | SingleHeadAttention
    | GroupedAttention
    | SharedQkvAttention
    | LatentAttention
    | WindowAttention
    | LinearAttention
    | RecurrentMixer
    | NoAttention,
    Field(discriminator="kind"),
]
