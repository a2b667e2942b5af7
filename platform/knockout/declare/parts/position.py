"""The slot `position`: how the network learns where a token stands."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from knockout.declare.base import Declaration, Positive, PositiveFloat

Factor = Annotated[float, Field(ge=1.0)]


class LearnedPosition(Declaration):
    """A trained row a position, added to the embedding; a sequence longer than `context` cannot be read."""

    kind: Literal["learned"] = "learned"


class SinusoidalPosition(Declaration):
    """Fixed sines and cosines added to the embedding (Vaswani et al. 2017, section 3.5), base 10000."""

    kind: Literal["sinusoidal"] = "sinusoidal"


class NoScaling(Declaration):
    """Positions as they were trained."""

    kind: Literal["none"] = "none"


class LinearScaling(Declaration):
    """Position interpolation: every position divided by the factor (Chen et al. 2023, equation 4)."""

    kind: Literal["linear"] = "linear"
    factor: Factor
    """Longest context over the one in training, 1 or more."""


class NtkScaling(Declaration):
    """NTK-aware: a larger base, so that only the slowest pair is interpolated in full (Peng et al. 2023, section 3.1)."""

    kind: Literal["ntk"] = "ntk"
    factor: Factor
    """Longest context over the one in training, 1 or more."""


class YarnScaling(Declaration):
    """Slow pairs interpolated, fast ones left, and softer scores (Peng et al. 2023, sections 3.2 - 3.4).

    Between the two the ramp is linear in how often a pair turns, as in the paper; in the authors' code it is linear in the
    pair's index.
    """

    kind: Literal["yarn"] = "yarn"
    factor: Factor
    """Longest context over the one in training, 1 or more."""
    original_context: Positive
    """Longest sequence in training, in tokens."""
    beta_fast: PositiveFloat = 32.0
    """Pairs that turn more often than this within `original_context` stay as they are. Over `beta_slow`."""
    beta_slow: PositiveFloat = 1.0
    """Pairs that turn less often than this are interpolated by the whole factor. Over 0."""
    temperature: PositiveFloat | None = None
    """Scores are divided by it. Over 0; by default 1 / (0.1 ln(factor) + 1)^2 (equation 22)."""


RotaryScaling = Annotated[NoScaling | LinearScaling | NtkScaling | YarnScaling, Field(discriminator="kind")]


class RotaryPosition(Declaration):
    """Queries and keys rotated by an angle that grows with their position (Su et al. 2021, equation 34)."""

    kind: Literal["rotary"] = "rotary"
    base: PositiveFloat = 10000.0
    """Base of the wavelengths; the longest is 2 pi * base positions. Over 0."""
    scaling: RotaryScaling = NoScaling()
    """How the angles are changed for contexts longer than in training; needs no training."""


class AlibiPosition(Declaration):
    """Scores fall with distance, in each head at its own slope; no parameters (Press et al. 2022, section 3)."""

    kind: Literal["alibi"] = "alibi"


class NoPosition(Declaration):
    """No word about positions; a causal mask is then the only sign of order."""

    kind: Literal["none"] = "none"


Position = Annotated[
    LearnedPosition | SinusoidalPosition | RotaryPosition | AlibiPosition | NoPosition, Field(discriminator="kind")
]
