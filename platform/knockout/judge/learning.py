"""How many tokens a baseline would likely need to learn enough.

The invariant: an extrapolation of the curve that was seen, told as one; past a hundred times the budget it only says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Curve = Sequence[tuple[float, float]]
"""(tokens, loss in nats per token), tokens rising."""
MOST_TIMES = 100.0
LEAST_POINTS = 3


def tokens_needed(curve: Curve, *, target: float) -> float | None:
    """Tokens at which the loss is likely to reach `target`; None when that cannot be told or is over 100 times the budget.

    A power law, loss = a tokens^-b, through the evaluations of the second half of training by least squares of the
    logarithms (Kaplan et al., "Scaling laws for neural language models", 2020, equation 1.2, far from the entropy of the
    text). A longer run decays its learning rate later, which the curve of a short one cannot show: a rough figure.
    """
    end = curve[-1][0] if curve else 0.0
    late = [(tokens, loss) for tokens, loss in curve if tokens >= end / 2 and 0.0 < loss < math.inf]
    if len(late) < LEAST_POINTS:
        return None
    x, y = np.log(np.array(late, dtype=np.float64)).T
    slope, intercept = np.polyfit(x, y, 1)
    if slope >= 0.0:
        return None
    exponent = (math.log(target) - intercept) / slope - math.log(end)
    return end * math.exp(exponent) if 0.0 < exponent <= math.log(MOST_TIMES) else None
