"""The slot `head`: how a vector becomes logits."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from knockout.declare.base import Declaration


class TiedHead(Declaration):
    """Logits from the embedding's own table (Press & Wolf 2017)."""

    kind: Literal["tied"] = "tied"


class UntiedHead(Declaration):
    """Logits from a table of the head's own."""

    kind: Literal["untied"] = "untied"


Head = Annotated[TiedHead | UntiedHead, Field(discriminator="kind")]
