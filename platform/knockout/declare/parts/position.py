"""The slot `position`: how the network learns where a token stands."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from knockout.declare.base import Declaration, PositiveFloat


class LearnedPosition(Declaration):
    """A trained row a position, added to the embedding; a sequence longer than `context` cannot be read."""

    kind: Literal["learned"] = "learned"


class SinusoidalPosition(Declaration):
    """Fixed sines and cosines added to the embedding (Vaswani et al. 2017, section 3.5), base 10000."""

    kind: Literal["sinusoidal"] = "sinusoidal"


class RotaryPosition(Declaration):
    """Queries and keys rotated by an angle that grows with their position (Su et al. 2021, equation 34)."""

    kind: Literal["rotary"] = "rotary"
    base: PositiveFloat = 10000.0
    """Base of the wavelengths; the longest is 2 pi * base positions. Over 0."""


class NoPosition(Declaration):
    """No word about positions; a causal mask is then the only sign of order."""

    kind: Literal["none"] = "none"


Position = Annotated[LearnedPosition | SinusoidalPosition | RotaryPosition | NoPosition, Field(discriminator="kind")]
