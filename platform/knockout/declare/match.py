"""What a study holds equal between its variants, and the one dimension of each that is free to make it so."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from knockout.declare.base import Declaration, Name, Positive

Quantity = Literal["parameters", "non_embedding_parameters", "active_parameters", "flops_per_token", "compute"]


class Match(Declaration):
    """Variants are brought to the baseline's value by solving the free dimension in its legal steps."""

    on: Quantity
    """What is equal: parameters in all, those outside the embedding and the head, those active on a token, training FLOPs a
    token, or compute, which is tokens × training FLOPs a token."""
    free: Literal["ffn.hidden", "width", "depth", "tokens"]
    """What may change: the feed-forward (or each expert's) hidden width in steps of 8, the width in steps that heads and 8
    divide, the depth, or the token budget in steps of a batch."""
    tolerance: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.01
    """Largest relative difference that may remain, over 0; more is refused."""
    step: Positive | None = None
    """Distance between two values of the free dimension that are tried; by default a multiple of 8 for widths."""
    variants: Annotated[list[Name], Field(min_length=1)] | None = None
    """Which variants are brought to it; without them, all that no other rule names."""
