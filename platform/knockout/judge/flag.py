"""What is said of a study to those who read its verdicts.

The invariant: what is no doubt follows from the declaration and from what its searches chose, never from a result, so that
what is said before training still holds after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Foreseen = Literal["handicap", "untuned", "edge", "unequal", "twins", "opposites", "undecidable"]
Doubt = Literal["floor", "flat", "luck", "outlier", "pruned", "looks"]
"""What only results give reason to tell."""
DOUBTS: tuple[str, ...] = get_args(Doubt)


@dataclass(frozen=True)
class Flag:
    """Something that a reader should weigh."""

    kind: Foreseen | Doubt
    level: Literal["serious", "note"]
    """serious: verdicts may rest on it."""
    variant: str | None
    """None: several of them, or all."""
    size: str | None
    """None: all of them."""
    sentence: str
