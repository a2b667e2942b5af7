"""The slot `block`: in which order a block's two branches run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from knockout.declare.base import Declaration


class SerialBlock(Declaration):
    """attention, then ffn on its result; each branch has its own norm."""

    kind: Literal["serial"] = "serial"


class ParallelBlock(Declaration):
    """attention and ffn side by side on one shared norm: x + attention(norm(x)) + ffn(norm(x)).

    As in GPT-J and PaLM (Chowdhery et al. 2022, section 2). The sum is one branch: it has one norm (a second after it
    in sandwich placement) and one residual connection.
    """

    kind: Literal["parallel"] = "parallel"


BlockKind = Annotated[SerialBlock | ParallelBlock, Field(discriminator="kind")]
