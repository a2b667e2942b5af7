"""The slot `residual`: how a branch joins the stream."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from knockout.declare.base import Declaration, PositiveFloat


class PlainResidual(Declaration):
    """Every branch is added to its input: x + f(x)."""

    kind: Literal["plain"] = "plain"


class NoResidual(Declaration):
    """Every branch replaces its input: f(x)."""

    kind: Literal["none"] = "none"


class ScaledResidual(Declaration):
    """Every branch is added to its input after a fixed scaling: x + alpha f(x)."""

    kind: Literal["scaled"] = "scaled"
    alpha: PositiveFloat
    """Factor of the branch. Over 0."""


class DeepnormResidual(Declaration):
    """norm(alpha x + f(x)) with alpha = (2 depth)^(1/4), for post placement (Wang et al. 2022, table 1, decoder-only).

    It brings its own first weights for the blocks' maps: Xavier normal, times (8 depth)^(-1/4) for the feed-forward
    part's, the values' and the last one (figure 2); `init` decides the rest.
    """

    kind: Literal["deepnorm"] = "deepnorm"


class RezeroResidual(Declaration):
    """x + g f(x) with one learned number g a branch that starts at 0 (Bachlechner et al. 2020, equation 1)."""

    kind: Literal["rezero"] = "rezero"


Residual = Annotated[
    PlainResidual | NoResidual | ScaledResidual | DeepnormResidual | RezeroResidual, Field(discriminator="kind")
]


def deepnorm_alpha(*, depth: int) -> float:
    """Factor of the stream in a decoder of `depth` blocks (Wang et al. 2022, table 1)."""
    return (2 * depth) ** 0.25


def deepnorm_beta(*, depth: int) -> float:
    """Gain of the scaled maps' first weights in a decoder of `depth` blocks (Wang et al. 2022, table 1)."""
    return (8 * depth) ** -0.25
