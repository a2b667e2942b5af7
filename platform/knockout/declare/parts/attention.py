"""The slot `attention`: how tokens read one another."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from knockout.declare.base import Declaration, Positive


class MultiHeadAttention(Declaration):
    """`heads` heads of width / heads each (Vaswani et al. 2017, section 3.2.2)."""

    kind: Literal["multi_head"] = "multi_head"
    causal: bool = True
    """Mask later tokens."""


class SingleHeadAttention(Declaration):
    """One head of the full width; `heads` is not used."""

    kind: Literal["single_head"] = "single_head"
    causal: bool = True
    """Mask later tokens."""


class GroupedAttention(Declaration):
    """Query heads in groups that share a key and a value head (Ainslie et al. 2023)."""

    kind: Literal["grouped"] = "grouped"
    kv_heads: Positive
    """Number of key and value heads, a divisor of `heads`; 1 is multi-query attention."""
    causal: bool = True
    """Mask later tokens."""


class NoAttention(Declaration):
    """No exchange between tokens: the branch is absent, and its norm with it."""

    kind: Literal["none"] = "none"
    causal: ClassVar[bool] = True


Attention = Annotated[MultiHeadAttention | SingleHeadAttention | GroupedAttention | NoAttention, Field(discriminator="kind")]
