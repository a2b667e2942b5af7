"""The slot `init`: what the weights are before training.

Biases start at 0 and gains at 1 under every scheme; parts whose numbers have a meaning of their own (a decay rate, a
step size, a recurrent matrix) start as their own paper says.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from knockout.declare.base import Declaration, Positive, PositiveFloat


class Gpt2Init(Declaration):
    """Normal weights, a branch's last map times 1/sqrt(2 depth) (Radford et al. 2019)."""

    kind: Literal["gpt2"] = "gpt2"
    std: PositiveFloat = 0.02
    """Standard deviation of the weights. Over 0."""


class SmallInit(Declaration):
    """Normal weights of standard deviation sqrt(2 / (5 width)), all alike (Nguyen & Salazar 2019, section 2.2)."""

    kind: Literal["small"] = "small"


class DepthScaledInit(Declaration):
    """T-Fixup, for training without norms (Huang et al. 2020, section 3.2).

    Xavier weights; the table normal with standard deviation width^(-1/2) (9 depth)^(-1/4); the feed-forward part's maps,
    the values' and each branch's last one times 0.67 depth^(-1/4), the constant of a stack whose blocks have two branches.
    """

    kind: Literal["depth_scaled"] = "depth_scaled"


class MupInit(Declaration):
    """As gpt2 at `base_width`; at any other width such that one learning rate serves all (Yang et al. 2022, table 8).

    With m = width / base_width, maps from width to width have standard deviation std / sqrt(m) and learn at 1/m of the
    rate, and logits are multiplied by 1/m. It presumes that heads keep their width while the network grows in heads, so
    that the scale of scores is a constant; and that what is inside a part grows with the width, so that hidden widths and
    ranks cannot be given as numbers of units.
    """

    kind: Literal["mup"] = "mup"
    base_width: Positive
    """The width at which the recipe's learning rate was found, in units."""
    std: PositiveFloat = 0.02
    """Standard deviation of the weights at that width. Over 0."""


Init = Annotated[Gpt2Init | SmallInit | DepthScaledInit | MupInit, Field(discriminator="kind")]
