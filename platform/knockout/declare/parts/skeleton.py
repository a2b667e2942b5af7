"""The slot `skeleton`: which stacks of blocks there are, and who reads whom."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from knockout.declare.base import Declaration, Positive


class DecoderSkeleton(Declaration):
    """One stack, from tokens to logits (Radford et al. 2018)."""

    kind: Literal["decoder"] = "decoder"


class EncoderSkeleton(Declaration):
    """One stack in which every token reads both sides, for masked tokens (Devlin et al. 2019)."""

    kind: Literal["encoder"] = "encoder"


class EncoderDecoderSkeleton(Declaration):
    """A stack without a mask reads the prefix; a causal one, of `depth` blocks, reads it and predicts the rest.

    Each block of the second has a branch more, between its two, in which its tokens read the first stack's output
    (Vaswani et al. 2017, section 3.1). That branch is always multi-head attention of `heads`
    heads without positions, its scores divided by the root of the head width: `attention` says nothing about it. Both
    stacks share the tables. `pattern` and `layers` are about the second; `depth` is 1 or more.
    """

    kind: Literal["encoder_decoder"] = "encoder_decoder"
    encoder_depth: Positive
    """Number of blocks in the stack that reads the prefix."""


Skeleton = Annotated[DecoderSkeleton | EncoderSkeleton | EncoderDecoderSkeleton, Field(discriminator="kind")]
