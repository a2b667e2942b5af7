"""The slot `residual`: how a branch joins the stream."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from knockout.declare.base import Declaration


class PlainResidual(Declaration):
    """Every branch is added to its input: x + f(x)."""

    kind: Literal["plain"] = "plain"


class NoResidual(Declaration):
    """Every branch replaces its input: f(x)."""

    kind: Literal["none"] = "none"


Residual = Annotated[PlainResidual | NoResidual, Field(discriminator="kind")]
