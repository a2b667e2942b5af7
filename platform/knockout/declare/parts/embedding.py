"""The slot `embedding`: how a token becomes a vector."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from knockout.declare.base import Declaration


class LearnedEmbedding(Declaration):
    """A trained table with one row a token."""

    kind: Literal["learned"] = "learned"
    scaled: bool = False
    """Multiply the rows by sqrt(width) on the way in (Vaswani et al. 2017, section 3.4)."""


class FrozenEmbedding(Declaration):
    """The table as it was drawn: no training changes it; a tied head reads it as it is. A mask's vector is trained."""

    kind: Literal["frozen"] = "frozen"
    scaled: bool = False
    """Multiply the rows by sqrt(width) on the way in (Vaswani et al. 2017, section 3.4)."""


Embedding = Annotated[LearnedEmbedding | FrozenEmbedding, Field(discriminator="kind")]
