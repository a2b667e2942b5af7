"""Numbers as a reader wants them.

The invariant: what has no number reads as a dash, never as zero and never as nan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NONE = "–"
_MINUS = "\N{MINUS SIGN}"


def number(value: float | None, digits: int = 3) -> str:
    """Significant digits, with a real minus sign."""
    if value is None:
        return NONE
    return f"{value:.{digits}g}".replace("-", _MINUS)


def mean_sd(row: Mapping[str, Any] | None) -> str:
    """`3.305 ± 0.012`, or the mean alone for one seed."""
    if row is None or row["mean"] is None:
        return NONE
    mean = f"{row['mean']:.3f}".replace("-", _MINUS)
    return mean if row["sd"] is None else f"{mean} ± {row['sd']:.3f}"


def effect(verdict: Mapping[str, Any]) -> str:
    """`+5.91 [5.39, 6.43]`, a share in percent, an identity's leak, or a dash."""
    value, interval = verdict["effect"], verdict["interval"]
    if value is None:
        return NONE
    if verdict["relation"] == "diverges":
        ends = "" if interval is None else f" [{100 * interval['low']:.0f}, {100 * interval['high']:.0f}]"
        return f"{100 * value:.0f} % of seeds{ends}"
    if interval is None:
        return number(value)
    return f"{_even(value, sign='+')} [{_even(interval['low'])}, {_even(interval['high'])}]"


def _even(value: float, *, sign: str = "-") -> str:
    """Three significant digits, zeros kept, so that an interval's ends are equally long."""
    return f"{value:{sign}#.3g}".rstrip(".").replace("-", _MINUS)


def duration(seconds: float | None) -> str:
    """`8.3 s`, `4 min 05 s`, `2 h 05 min`."""
    if seconds is None:
        return NONE
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def thousands(value: float | None) -> str:
    """A count with thin spaces between thousands."""
    return NONE if value is None else f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def ratio(value: float | None) -> str:
    """A ratio to the baseline as a difference in percent: `same`, `+1.2 %`."""
    if value is None:
        return NONE
    percent = 100 * (value - 1)
    return "same" if abs(percent) < 0.005 else f"{percent:+.3g} %".replace("-", _MINUS)


def grouped(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by size, in order."""
    return {size: [row for row in rows if row["size"] == size] for size in dict.fromkeys(r["size"] for r in rows)}
