"""The small forest plots of the verdict table: where effect, interval and threshold lie, in percent of the
width.

The invariant: all rows share one axis, so only differences between losses are drawn. It is stretched near zero (inverse
hyperbolic sine), so that an effect of 6 nats and one of 0.02 can both be read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from knockout.declare.metric import LOSSES
from knockout.report.words import number

_LINEAR_BELOW = 0.05
"""Effects under this, in the metric's unit, are drawn to scale."""
_TICKS = (0.01, 0.1, 1.0, 10.0)
_MARGIN_PERCENT = 4.0
_APART_PERCENT = 9.0
"""Labels nearer to each other than this would run into one another."""


def forest(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Ticks of the shared axis, and for each verdict its places or None where it has no interval in the
    metric's unit.
    """
    drawn = [verdict if _comparable(verdict) else None for verdict in verdicts]
    reach = [abs(_bend(value)) for verdict in drawn if verdict for value in _extent(verdict)]
    most = max(reach, default=1.0) or 1.0

    def place(value: float) -> float:
        return round(50.0 + (50.0 - _MARGIN_PERCENT) * max(-1.0, min(1.0, _bend(value) / most)), 2)

    shown: list[float] = []
    for tick in _TICKS:
        if _bend(tick) <= most and place(tick) - place(shown[-1] if shown else 0.0) >= _APART_PERCENT:
            shown.append(tick)
    shown = shown[-2:]
    ticks = [*(-tick for tick in reversed(shown)), 0.0, *shown]
    return {
        "ticks": [{"at": place(tick), "label": number(tick)} for tick in ticks],
        "rows": [_row(verdict, place=place) if verdict else None for verdict in drawn],
    }


def _row(verdict: Mapping[str, Any], *, place: Any) -> dict[str, Any]:
    threshold, relation = verdict["threshold"], verdict["relation"]
    edges = {
        "worse": [threshold],
        "higher": [threshold],
        "better": [-threshold],
        "lower": [-threshold],
        "equivalent": [-threshold, threshold],
    }[relation]
    return {
        "low": place(verdict["interval"]["low"]),
        "high": place(verdict["interval"]["high"]),
        "effect": place(verdict["effect"]),
        "edges": [place(edge) for edge in edges],
    }


def _comparable(verdict: Mapping[str, Any]) -> bool:
    """Whether it is a difference between two variants' losses."""
    plain = verdict["relation"] in ("worse", "better", "higher", "lower", "equivalent")
    return plain and verdict["interval"] is not None and verdict["metric"] in LOSSES


def _extent(verdict: Mapping[str, Any]) -> list[float]:
    return [verdict["interval"]["low"], verdict["interval"]["high"], verdict["threshold"]]


def _bend(value: float) -> float:
    return math.asinh(value / _LINEAR_BELOW)
