"""Single values that lie too far off: from their own sample, or from one to come.

The invariant: normally distributed values are called so no more often than the level says; nothing is ever removed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from knockout.judge.statistics.student import t_quantile

LEAST = 3
"""Of two values neither is further off than the other."""


def grubbs_critical(num_values: int, *, alpha: float) -> float:
    """What the largest distance from the mean, in standard deviations, exceeds with probability alpha at most.

    Source: Grubbs, "Sample criteria for testing outlying observations", Ann. Math. Statist. 21 (1950), p. 27, and
    "Procedures for detecting outlying observations in samples", Technometrics 11 (1969), p. 1, two-sided:
    G = (n - 1) / sqrt n * sqrt(t² / (n - 2 + t²)), t the upper alpha / (2 n) point of Student's t with n - 2 degrees of
    freedom: 1.764 for n = 5 and 2.482 for n = 10 at alpha = 0.01. Of three values none lies further off than 2 / sqrt 3,
    which is over the critical value by 1.6e-5: three values have an outlier only where two of them are all but equal.
    """
    t = t_quantile(1.0 - alpha / (2.0 * num_values), degrees=num_values - 2)
    return (num_values - 1) / math.sqrt(num_values) * math.sqrt(t * t / (num_values - 2 + t * t))


def outlier(values: Sequence[float], *, alpha: float) -> int | None:
    """The place of the value that lies furthest off its sample's mean, if that is further than chance allows (Grubbs)."""
    sample = np.asarray(values, dtype=np.float64)
    if sample.size < LEAST or (spread := float(sample.std(ddof=1))) == 0.0:
        return None
    distances = np.abs(sample - sample.mean()) / spread
    furthest = int(distances.argmax())
    return furthest if distances[furthest] > grubbs_critical(sample.size, alpha=alpha) else None


def prediction_bound(sd: float, *, num_seen: int, num_new: int = 1, alpha: float) -> float:
    """How far the mean of new values may lie under that of those seen, by chance: exceeded with probability alpha.

    Source: the prediction interval of a future mean, t(1 - alpha, n - 1) * s * sqrt(1 / m + 1 / n) (Hahn and Meeker,
    "Statistical intervals", 1991, chapter 4), s the standard deviation of the n values seen.
    """
    return t_quantile(1.0 - alpha, degrees=num_seen - 1) * sd * math.sqrt(1.0 / num_new + 1.0 / num_seen)
