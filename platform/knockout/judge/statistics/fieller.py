"""The ratio of two paired expectations.

The invariant: a ratio is never averaged over seeds; it is tested as a difference, so that its interval is exact for normally
distributed pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from knockout.judge.statistics.student import PairedT, paired_t, t_quantile


@dataclass(frozen=True)
class Fieller:
    """n paired values with positive expectations; the effect is E[above] / E[below].

    Source: Fieller, "Some problems in interval estimation", J. R. Stat. Soc. B 16 (1954), p. 175: the ratio is theta where
    E[above - theta * below] is zero, which Student's t on the paired differences tests.
    """

    upper: tuple[float, ...]
    lower: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The ratio of the means."""
        return math.fsum(self.upper) / math.fsum(self.lower)

    def above(self, threshold: float) -> float:
        """One-sided p-value against "the ratio is at most `threshold`"."""
        return self.against(threshold).above(0.0)

    def below(self, threshold: float) -> float:
        """One-sided p-value against "the ratio is at least `threshold`"."""
        return self.against(threshold).below(0.0)

    def exactly(self, threshold: float) -> bool:
        """Whether it is the ratio of every pair."""
        return self.against(threshold).exactly(0.0)

    def against(self, threshold: float) -> PairedT:
        """The paired differences that have expectation zero where the ratio is `threshold`."""
        return paired_t([first - threshold * second for first, second in zip(self.upper, self.lower, strict=True)])

    def interval(self, *, level: float) -> tuple[float, float] | None:
        """The two-sided confidence interval, or None where it is unbounded: the divisor may be zero.

        The thetas with (a - theta b)² <= t² (s_aa - 2 theta s_ab + theta² s_bb) / n (Fieller 1954): between the roots of a
        quadratic, if its leading term b² - t² s_bb / n is over zero.
        """
        num = len(self.upper)
        a, b = np.mean(self.upper), np.mean(self.lower)
        spread = np.cov(self.upper, self.lower) * t_quantile(0.5 + level / 2.0, degrees=num - 1) ** 2 / num
        aa, bb, ab = spread[0, 0], spread[1, 1], spread[0, 1]
        leading, half = b * b - bb, a * b - ab
        if leading <= 0.0:
            return None
        # half² - leading (a² - aa), multiplied out so that nothing is left of it where there is no spread.
        root = math.sqrt(max(0.0, ab * ab - aa * bb + b * b * aa + a * a * bb - 2.0 * a * b * ab))
        return float((half - root) / leading), float((half + root) / leading)
