"""The slot `ffn`: what is done at every position alone."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from knockout.declare.base import Declaration, Positive, PositiveFloat

Activation = Literal["gelu", "relu", "swiglu"]


class HiddenWidth(Declaration):
    """The hidden width of a feed-forward part: given, or a multiple of the width, or by default."""

    hidden: Positive | None = None
    """Hidden width, in units (for a mixture: of each expert); excludes `expansion`."""
    expansion: PositiveFloat | None = None
    """Hidden width over width, over 0; default 4, and for swiglu 8/3 rounded up to a multiple of 8 units."""


class GeluFeedForward(HiddenWidth):
    """Two linear maps with the exact GELU between them (Hendrycks & Gimpel 2016)."""

    kind: Literal["gelu"] = "gelu"


class ReluFeedForward(HiddenWidth):
    """Two linear maps with ReLU between them (Vaswani et al. 2017, equation 2)."""

    kind: Literal["relu"] = "relu"


class SwigluFeedForward(HiddenWidth):
    """A gated part of three linear maps: (SiLU(x W_gate) * x W_up) W_down (Shazeer 2020, equation 6)."""

    kind: Literal["swiglu"] = "swiglu"


class LinearFeedForward(HiddenWidth):
    """Two linear maps with nothing between them."""

    kind: Literal["linear"] = "linear"


class MoeFeedForward(HiddenWidth):
    """Experts of which a router picks `top_k` for every token (Shazeer et al. 2017); none is dropped."""

    kind: Literal["moe"] = "moe"
    experts: Positive
    """Number of experts."""
    top_k: Positive
    """Experts that work on each token, at most `experts`."""
    balance: Annotated[float, Field(ge=0.0)] = 0.01
    """Weight of the load-balance loss, 0 or more (alpha in Fedus et al. 2021, equation 4)."""
    activation: Activation = "gelu"
    """What an expert is: gelu, relu or swiglu."""


class NoFeedForward(Declaration):
    """No feed-forward part: the branch is absent, and its norm with it."""

    kind: Literal["none"] = "none"


FeedForward = Annotated[
    GeluFeedForward | ReluFeedForward | SwigluFeedForward | LinearFeedForward | MoeFeedForward | NoFeedForward,
    Field(discriminator="kind"),
]
