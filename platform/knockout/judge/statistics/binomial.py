"""The exact binomial test: does a variant diverge in more than half of its seeds?

The invariant: exact at every number of seeds. With all seeds on one side a two-sided p-value of 0.05 needs
six.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """`count` of `total` runs; answers one-sided questions about the probability behind them.

    Source: Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the
    binomial", Biometrika 26 (1934), p. 404; tails through the incomplete beta function (Abramowitz and
    Stegun 26.5.24).
    """

    count: int
    total: int

    @property
    def mean(self) -> float:
        """The observed share."""
        return self.count / self.total

    def above(self, threshold: float) -> float:
        """One-sided p-value against "the probability is at most `threshold`": P(X >= count)."""
        return 1.0 if self.count == 0 else _beta_below(threshold, a=self.count, b=self.total - self.count + 1)

    def below(self, threshold: float) -> float:
        """One-sided p-value against "the probability is at least `threshold`": P(X <= count)."""
        rest = self.total - self.count
        return 1.0 if rest == 0 else _beta_below(1.0 - threshold, a=rest, b=self.count + 1)

    def exactly(self, threshold: float) -> bool:
        """Never: a count always has its spread."""
        return False

    def interval(self, *, level: float) -> tuple[float, float]:
        """The exact two-sided confidence interval of the probability."""
        tail = (1.0 - level) / 2.0
        rest = self.total - self.count
        low = 0.0 if self.count == 0 else _beta_quantile(tail, a=self.count, b=rest + 1)
        high = 1.0 if rest == 0 else _beta_quantile(1.0 - tail, a=self.count + 1, b=rest)
        return low, high


def _beta_below(value: float, *, a: float, b: float) -> float:
    """The probability that a beta variable is below a value: the regularized incomplete beta function."""
    from scipy.special import betainc  # by what calls it, as in `student`

    return float(betainc(a, b, value))


def _beta_quantile(probability: float, *, a: float, b: float) -> float:
    from scipy.special import betaincinv

    return float(betaincinv(a, b, probability))
