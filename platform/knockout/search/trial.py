"""A trial of a search as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Curve = tuple[tuple[int, float], ...]
"""(step, loss) at each evaluation, in order."""
TrialState = Literal["open", "done", "diverged", "pruned"]


@dataclass(frozen=True)
class Trial:
    """One point of a search, and what it came to."""

    number: int
    values: dict[str, float]
    state: TrialState = "open"
    loss: float | None = None
    """Of a done trial."""
    curve: Curve = ()
    """Evaluations of its first seed, up to where it was pruned."""
    reason: str | None = None
    """Why it was pruned."""
    extends: str | None = None
    """The setting whose range it goes beyond."""
