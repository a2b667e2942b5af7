"""Looking at a study more than once without being fooled more often: the error is spent look by look.

The invariant: the looks are declared before the first run, and the levels of all of them sum to the study's alpha, so that
the chance of any wrong conclusion stays under alpha whatever the dependence between looks (Boole's inequality).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def spend(looks: Sequence[int], *, alpha: float) -> list[float]:
    """The level of each look: alpha times the share of all seeds that are new at it.

    Source: Lan and DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70 (1983), p. 659, with the
    uniform spending function alpha t of their section 3; each increment is a level of its own, as in Slud and Wei,
    "Two-sample repeated significance tests", J. Am. Stat. Assoc. 77 (1982), p. 862, without the gain from the correlation
    of looks, which for Student's t at a handful of seeds has no closed form.

    `looks` holds the seeds in all at each look, rising.
    """
    before = [0, *looks[:-1]]
    return [alpha * (seeds - earlier) / looks[-1] for seeds, earlier in zip(looks, before, strict=True)]


@dataclass(frozen=True)
class Look:
    """The seeds that are there at a look, and the level at which claims are judged at it."""

    seeds: frozenset[int]
    alpha: float
    words: str
    """Which look it is, for a verdict's reason; nothing where there is only one."""


def declared_looks(seeds: Sequence[Sequence[int]], *, num_declared: int, last: int, alpha: float) -> list[Look]:
    """The looks taken so far: `seeds` of each, of `num_declared` looks, at the last of which there are `last` seeds."""
    counts = [len(at) for at in seeds]
    levels = spend([*counts, *([last] if counts[-1] < last else [])], alpha=alpha)
    return [
        Look(frozenset(at), level, f"look {i} of {num_declared} at level {level:.3g}" if num_declared > 1 else "")
        for i, (at, level) in enumerate(zip(seeds, levels, strict=False), start=1)
    ]
