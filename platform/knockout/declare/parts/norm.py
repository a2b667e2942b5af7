"""The slot `norm`: which normalisation, and where."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from knockout.declare.base import Declaration, PositiveFloat

Placement = Literal["pre", "post"]


class LayerNorm(Declaration):
    """Centre and scale every token to mean 0 and variance 1, then gain and bias (Ba et al. 2016)."""

    kind: Literal["layer"] = "layer"
    placement: Placement = "pre"
    """pre: before each branch, and once before the head. post: after each addition (Xiong et al. 2020)."""
    eps: PositiveFloat = 1e-5
    """Added to the variance. Over 0."""


class RmsNorm(Declaration):
    """Scale every token to a mean square of 1, then gain; no centring, no bias (Zhang & Sennrich 2019)."""

    kind: Literal["rms"] = "rms"
    placement: Placement = "pre"
    """pre: before each branch, and once before the head. post: after each addition (Xiong et al. 2020)."""
    eps: PositiveFloat = 1e-5
    """Added to the mean square. Over 0."""


class NoNorm(Declaration):
    """No normalisation anywhere."""

    kind: Literal["none"] = "none"


Norm = Annotated[LayerNorm | RmsNorm | NoNorm, Field(discriminator="kind")]
