"""The slot `ffn`: what is done at every position alone.

The invariant: a dense kind is its name, its width and whether it has a gate; an expert of a mixture is one of the
dense kinds, so a new one serves as an expert at once.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from knockout.declare.base import Declaration, NonNegative, Positive, PositiveFloat


class HiddenWidth(Declaration):
    """The hidden width of a feed-forward part: given, or a multiple of the width, or by default."""

    hidden: Positive | None = None
    """Hidden width, in units (for a mixture: of each expert); excludes `expansion`."""
    expansion: PositiveFloat | None = None
    """Hidden width over width, over 0; default 4, and for gated kinds 8/3 rounded up to a multiple of 8 units."""


class DenseFeedForward(HiddenWidth):
    """Linear maps with an activation between them; a gated kind has three maps, the others two."""

    gated: ClassVar[bool] = False


class GeluFeedForward(DenseFeedForward):
    """Two linear maps with the exact GELU between them (Hendrycks & Gimpel 2016)."""

    kind: Literal["gelu"] = "gelu"


class GeluTanhFeedForward(DenseFeedForward):
    """Two linear maps with GELU's approximation by tanh between them, as in GPT-2 (Hendrycks & Gimpel 2016, section 2)."""

    kind: Literal["gelu_tanh"] = "gelu_tanh"


class ReluFeedForward(DenseFeedForward):
    """Two linear maps with ReLU between them (Vaswani et al. 2017, equation 2)."""

    kind: Literal["relu"] = "relu"


class SquaredReluFeedForward(DenseFeedForward):
    """Two linear maps with the square of ReLU between them (So et al. 2021, "Primer", section 4)."""

    kind: Literal["squared_relu"] = "squared_relu"


class LinearFeedForward(DenseFeedForward):
    """Two linear maps with nothing between them."""

    kind: Literal["linear"] = "linear"


class SwigluFeedForward(DenseFeedForward):
    """A gated part of three linear maps: (SiLU(x W_gate) * x W_up) W_down (Shazeer 2020, equation 6)."""

    kind: Literal["swiglu"] = "swiglu"
    gated: ClassVar[bool] = True


class GegluFeedForward(DenseFeedForward):
    """A gated part of three linear maps: (GELU(x W_gate) * x W_up) W_down (Shazeer 2020, equation 6)."""

    kind: Literal["geglu"] = "geglu"
    gated: ClassVar[bool] = True


DenseKind = Literal["gelu", "gelu_tanh", "relu", "squared_relu", "linear", "swiglu", "geglu"]
Dense = (
    GeluFeedForward
    | GeluTanhFeedForward
    | ReluFeedForward
    | SquaredReluFeedForward
    | LinearFeedForward
    | SwigluFeedForward
    | GegluFeedForward
)
DENSE: dict[DenseKind, type[Dense]] = {
    "gelu": GeluFeedForward,
    "gelu_tanh": GeluTanhFeedForward,
    "relu": ReluFeedForward,
    "squared_relu": SquaredReluFeedForward,
    "linear": LinearFeedForward,
    "swiglu": SwigluFeedForward,
    "geglu": GegluFeedForward,
}


class SoftmaxRouting(Declaration):
    """Scores are a softmax over the experts (Shazeer et al. 2017, equation 2)."""

    kind: Literal["softmax"] = "softmax"
    scale: PositiveFloat = 1.0
    """The chosen experts' gates, which sum to 1, are multiplied by this; with top_k 1 the one raw score is. Over 0."""


class SigmoidRouting(Declaration):
    """Each expert's score is a sigmoid of its own (DeepSeek-AI 2024, "DeepSeek-V3", equation 15)."""

    kind: Literal["sigmoid"] = "sigmoid"
    scale: PositiveFloat = 1.0
    """The chosen experts' gates, which sum to 1, are multiplied by this; with top_k 1 the one raw score is. 2.5 in
    DeepSeek-V3. Over 0."""


Routing = Annotated[SoftmaxRouting | SigmoidRouting, Field(discriminator="kind")]


class LossBalance(Declaration):
    """A loss that is least when experts are chosen equally often (Fedus et al. 2021, equation 4)."""

    kind: Literal["loss"] = "loss"
    weight: PositiveFloat = 0.01
    """Weight of the loss beside the training loss (alpha in the paper). Over 0."""


class BiasBalance(Declaration):
    """A number an expert, added to its score for the choice alone, goes up while it is chosen too rarely.

    It is no parameter: each optimizer step moves it once (Wang et al. 2024, "Auxiliary-Loss-Free Load Balancing",
    algorithm 1).
    """

    kind: Literal["bias"] = "bias"
    speed: PositiveFloat = 0.001
    """How far one optimizer step moves it, in units of the score. Over 0."""


class NoBalance(Declaration):
    """Nothing keeps the router from choosing the same experts always."""

    kind: Literal["none"] = "none"


Balance = Annotated[LossBalance | BiasBalance | NoBalance, Field(discriminator="kind")]


class MoeFeedForward(HiddenWidth):
    """Experts of which a router picks `top_k` for every token (Shazeer et al. 2017); no token is dropped."""

    kind: Literal["moe"] = "moe"
    experts: Positive
    """Number of experts to choose from, 2 or more."""
    top_k: Positive
    """Experts that are chosen for each token, at most `experts`."""
    shared: NonNegative = 0
    """Experts that work on every token beside the chosen ones (Dai et al. 2024, "DeepSeekMoE", equation 9)."""
    activation: DenseKind = "gelu"
    """What an expert is: one of the dense kinds."""
    routing: Routing = SoftmaxRouting()
    """How the router scores experts."""
    balance: Balance = LossBalance()
    """What keeps the load even."""
    first_dense: NonNegative = 0
    """Number of layers, from the first on, that hold one dense part in the mixture's place, under `depth`; 0 under
    `layers`."""
    dense_hidden: Positive | None = None
    """Hidden width of those layers, in units; by default as for a dense part of this activation."""


class NoFeedForward(Declaration):
    """No feed-forward part: the branch is absent, and its norm with it."""

    kind: Literal["none"] = "none"


FeedForward = Annotated[Dense | MoeFeedForward | NoFeedForward, Field(discriminator="kind")]


def feed_forward_of_layer(ffn: FeedForward, *, layer: int) -> FeedForward:
    """What the slot holds in a layer, counted from 0: a mixture's first layers are dense where it says so."""
    match ffn:
        case MoeFeedForward(first_dense=first_dense, activation=activation) if layer < first_dense:
            return DENSE[activation](hidden=ffn.dense_hidden)
        case _:
            return ffn


def is_gated(ffn: FeedForward) -> bool:
    """True for a part that has a gate, or whose experts have one, and so three maps and not two."""
    match ffn:
        case DenseFeedForward():
            return ffn.gated
        case MoeFeedForward(activation=activation):
            return DENSE[activation].gated
        case NoFeedForward():
            return False
