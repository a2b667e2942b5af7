"""Holm's correction for judging several claims at once.

The invariant: the chance of any wrong conclusion over the whole family stays under alpha, whatever is true,
and an adjusted p-value is never under the plain one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Adjusted:
    """A p-value after correction, and the factor that its place in the order earned it."""

    p: float
    factor: int


def holm(p_values: Sequence[float]) -> list[Adjusted]:
    """Step-down adjusted p-values, in the order given.

    Source: Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6 (1979), p.
    65: the k-th smallest of m is multiplied by m - k + 1, and none may fall under the one before it.
    """
    adjusted: dict[int, Adjusted] = {}
    running = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        factor = len(p_values) - place
        running = max(running, min(1.0, factor * p_values[index]))
        adjusted[index] = Adjusted(p=running, factor=factor)
    return [adjusted[index] for index in range(len(p_values))]
