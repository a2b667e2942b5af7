"""Student's t on paired differences.

The invariant: exact for normally distributed differences at every n from 2; differences without any spread
are handled as what they are, a known effect, and give no NaN. scipy is imported where it is called, so that no command
which judges nothing waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PairedT:
    """Mean and spread of n paired differences; answers one-sided questions about their expectation.

    Source: Student, "The probable error of a mean", Biometrika 6 (1908), p. 1: t = (mean - t0) / (sd / sqrt
    n) with n - 1 degrees of freedom.
    """

    mean: float
    sd: float
    num_pairs: int

    def interval(self, *, level: float) -> tuple[float, float]:
        """The two-sided confidence interval of the expectation, for example at level 0.95."""
        half = t_quantile(0.5 + level / 2.0, degrees=self.num_pairs - 1) * self.sd / math.sqrt(self.num_pairs)
        return self.mean - half, self.mean + half

    def above(self, threshold: float) -> float:
        """One-sided p-value against "the expectation is at most `threshold`"."""
        return self._tail(self.mean - threshold)

    def below(self, threshold: float) -> float:
        """One-sided p-value against "the expectation is at least `threshold`"."""
        return self._tail(threshold - self.mean)

    def exactly(self, threshold: float) -> bool:
        """Whether every difference is `threshold`."""
        return self.sd == 0.0 and self.mean == threshold

    def _tail(self, distance: float) -> float:
        if self.sd == 0.0:
            return 0.0 if distance > 0.0 else 1.0
        return t_below(-distance * math.sqrt(self.num_pairs) / self.sd, degrees=self.num_pairs - 1)


def paired_t(differences: Sequence[float]) -> PairedT:
    """Summary of at least two finite paired differences.

    Raises:
        ValueError: fewer than two, or one that is not finite (a divergence belongs to the rank test).
    """
    values = np.asarray(differences, dtype=np.float64)
    if values.size < 2 or not np.isfinite(values).all():
        raise ValueError(
            f"paired_t needs two or more finite differences (a divergence goes to the rank test), got {list(differences)}"
        )
    identical = bool((values == values[0]).all())
    mean = float(values[0]) if identical else float(values.mean())
    return PairedT(mean=mean, sd=0.0 if identical else float(values.std(ddof=1)), num_pairs=int(values.size))


def t_quantile(probability: float, *, degrees: int) -> float:
    """The quantile of Student's t distribution: 4.303 at 0.975 with 2 degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


def t_below(value: float, *, degrees: int) -> float:
    """The probability that Student's t is below a value: 0.025 at -4.303 with 2 degrees of freedom."""
    from scipy.special import stdtr

    return float(stdtr(degrees, value))
