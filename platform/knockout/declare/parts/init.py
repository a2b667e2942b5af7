"""The slot `init`: what the weights are before training."""

from __future__ import annotations

from typing import Literal

from knockout.declare.base import Declaration, PositiveFloat


class Gpt2Init(Declaration):
    """Normal weights, a branch's last map times 1/sqrt(2 depth); biases 0, gains 1 (Radford et al. 2019)."""

    kind: Literal["gpt2"] = "gpt2"
    std: PositiveFloat = 0.02
    """Standard deviation of the weights. Over 0."""


Init = Gpt2Init
