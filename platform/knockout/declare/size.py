"""A named scale: the dimensions and the budget that a study's cells start from."""

from __future__ import annotations

from knockout.declare.base import Declaration, Name, NonNegative, Positive, PositiveFloat


class Size(Declaration):
    """Dimensions of the model and budget of the training, under one name."""

    size: Name
    """The size's name."""
    width: Positive
    """Width of the residual stream."""
    depth: NonNegative
    """Number of blocks."""
    heads: Positive
    """Attention heads a block."""
    context: Positive
    """Tokens in a window."""
    vocabulary: Positive
    """Token ids, the end-of-text marker included."""
    batch: Positive
    """Sequences an optimizer step."""
    tokens: Positive
    """Token budget of a run."""
    learning_rate: PositiveFloat
    """Peak learning rate that suits the size."""
    warmup_steps: NonNegative
    """Steps of linear warm-up."""
