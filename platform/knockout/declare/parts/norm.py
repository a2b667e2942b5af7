"""The slot `norm`: which normalisation, and where."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from knockout.declare.base import Declaration, PositiveFloat

Placement = Literal["pre", "post", "sandwich"]


class PlacedNorm(Declaration):
    """A normalisation that stands somewhere."""

    placement: Placement = "pre"
    """pre: before each branch, and once before the head. post: after each addition (Xiong et al. 2020).
    sandwich: before and after each branch, and once before the head (Ding et al. 2021, "CogView", section 2.4)."""


class LayerNorm(PlacedNorm):
    """Centre and scale every token to mean 0 and variance 1, then gain and bias (Ba et al. 2016)."""

    kind: Literal["layer"] = "layer"
    eps: PositiveFloat = 1e-5
    """Added to the variance. Over 0."""


class RmsNorm(PlacedNorm):
    """Scale every token to a mean square of 1, then gain; no centring, no bias (Zhang & Sennrich 2019)."""

    kind: Literal["rms"] = "rms"
    eps: PositiveFloat = 1e-5
    """Added to the mean square. Over 0."""


class DynamicTanhNorm(PlacedNorm):
    """gain tanh(alpha x) + bias with one learned alpha a norm: no statistics at all (Zhu et al. 2025, equation 2)."""

    kind: Literal["dynamic_tanh"] = "dynamic_tanh"
    alpha: PositiveFloat = 0.5
    """What alpha is before training. Over 0."""


class NoNorm(Declaration):
    """No normalisation anywhere."""

    kind: Literal["none"] = "none"


Norm = Annotated[LayerNorm | RmsNorm | DynamicTanhNorm | NoNorm, Field(discriminator="kind")]
