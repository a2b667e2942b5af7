"""A named scale: the dimensions and the budget that a study's cells start from."""

from __future__ import annotations

from knockout.declare.base import Declaration, Depth, Name, NonNegative, Positive, PositiveFloat, Tokens


class Size(Declaration):
    """Dimensions of the model and budget of the training, under one name."""

    size: Name
    """The size's name."""
    width: Positive
    """Width of the residual stream."""
    depth: Depth
    """Number of blocks."""
    heads: Positive
    """Attention heads a block."""
    context: Positive
    """Tokens in a window."""
    vocabulary: Positive
    """Token ids, the end-of-text marker included."""
    batch: Positive
    """Sequences an optimizer step."""
    tokens: Tokens
    """Token budget of a run."""
    learning_rate: PositiveFloat
    """Peak learning rate that suits the size."""
    warmup_steps: NonNegative
    """Steps of linear warm-up."""
