"""The slot `objective`: what the network is asked about a window of text.

It is a part of the architecture, and not of the recipe, because it decides what the network may see and whether there
is a vector for the mask. Whatever the objective, `generation_loss` measures the next token from its prefix alone.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from knockout.declare.base import Declaration, Probability

EXAM_SHARE = 0.5
"""Share of the window that is its prefix where the declaration leaves it to chance and the exam must not."""

Share = Annotated[float, Field(gt=0.0, lt=1.0)]


class NextTokenObjective(Declaration):
    """Every token from those before it (Radford et al. 2018, equation 1)."""

    kind: Literal["next_token"] = "next_token"


class MaskedObjective(Declaration):
    """Hidden tokens from those on both sides (Devlin et al. 2019, section 3.1); each window hides equally many.

    The mask is a vector of its own beside the token table, and no token: it cannot be predicted.
    """

    kind: Literal["masked"] = "masked"
    rate: Share = 0.15
    """Share of a window's tokens that are hidden and asked for, over 0 and under 1; one at least."""
    masked: Probability = 0.8
    """Of those, the share that the mask stands for, over 0; with 1 all of them."""
    random: Probability = 0.1
    """Of those, the share that another token, drawn at random, stands for; the rest stay as they are."""


class PrefixObjective(Declaration):
    """The tokens after a prefix, which is read in both directions (Raffel et al. 2020, section 3.2.1)."""

    kind: Literal["prefix"] = "prefix"
    share: Share | None = None
    """Share of the window that is its prefix, over 0 and under 1. null: drawn anew each step, evenly over 1 to all but one
    token; the exam then takes half."""

    @property
    def exam_share(self) -> float:
        """Share of the window that is its prefix in the exam."""
        return EXAM_SHARE if self.share is None else self.share


Objective = Annotated[NextTokenObjective | MaskedObjective | PrefixObjective, Field(discriminator="kind")]


def prefix_tokens(share: float, *, num_tokens: int) -> int:
    """How many of a window's tokens are its prefix: one at least, and not all."""
    return min(max(1, round(share * num_tokens)), max(1, num_tokens - 1))
