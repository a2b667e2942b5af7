"""How long jobs take that share a few slots."""

from __future__ import annotations

import heapq
from collections.abc import Iterable


def makespan(seconds: Iterable[float], *, slots: int) -> float:
    """When the last of some jobs ends, each of so many seconds, where `slots` of them run at a time.

    The longest jobs begin first (Graham 1969, "Bounds on multiprocessing timing anomalies", section 5), which is at most
    4/3 - 1/(3 slots) of the best there is. Jobs that begin in another order end later by less than the longest one takes.
    """
    free = [0.0] * slots
    for job in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + job)
    return max(free)
