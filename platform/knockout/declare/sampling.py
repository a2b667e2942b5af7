"""How a next token is chosen from its probabilities.

The invariant: a kind's probabilities are the softmax of logits / temperature, cut off in its own way and divided by
their sum.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from knockout.declare.base import Declaration, Positive, PositiveFloat


class GreedySampling(Declaration):
    """Always the most probable token; of several, the one with the lowest number."""

    kind: Literal["greedy"] = "greedy"


class TemperatureSampling(Declaration):
    """Any token, by its probability."""

    kind: Literal["temperature"] = "temperature"
    temperature: PositiveFloat = 1.0
    """Logits are divided by it. Over 0; below 1 is sharper, above 1 flatter."""


class TopKSampling(Declaration):
    """One of the `k` most probable tokens (Fan et al. 2018, section 5.4)."""

    kind: Literal["top_k"] = "top_k"
    k: Positive
    """Number of tokens to choose from."""
    temperature: PositiveFloat = 1.0
    """Logits are divided by it. Over 0."""


class TopPSampling(Declaration):
    """One of the fewest most probable tokens whose probabilities sum to `p` (Holtzman et al. 2020, section 3.1)."""

    kind: Literal["top_p"] = "top_p"
    p: Annotated[float, Field(gt=0.0, le=1.0)]
    """Probability that is kept, over 0 to 1."""
    temperature: PositiveFloat = 1.0
    """Logits are divided by it, before the cut. Over 0."""


Sampling = Annotated[GreedySampling | TemperatureSampling | TopKSampling | TopPSampling, Field(discriminator="kind")]
