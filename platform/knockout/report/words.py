"""Numbers as a reader wants them.

The invariant: what has no number reads as a dash, never as zero and never as nan.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

NONE = "–"
_MINUS = "\N{MINUS SIGN}"
_UNITS = {"peak_memory_bytes": (" MB", 1e6), "tokens_per_second": (" tokens/s", 1.0)}
"""What a metric that is no loss is shown in, and how much of it that is."""


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


def megabytes(row: Mapping[str, Any] | None) -> str:
    """A mean of bytes as megabytes: `12.3 MB`."""
    return NONE if row is None or row["mean"] is None else f"{row['mean'] / 1e6:.3g} MB"


def effect(verdict: Mapping[str, Any]) -> str:
    """`+5.91 [5.39, 6.43]`, `+12.5 MB [12.1, 12.9]`, a share in percent, a place `at 4 [2, 8 or beyond]`, an identity's
    leak, or a dash.
    """
    value, interval = verdict["effect"], verdict["interval"]
    match verdict["relation"]:
        case "knee" | "threshold" if interval is not None:
            last = verdict.get("last")
            low, high = (_place(interval[end], last=last) for end in ("low", "high"))
            return f"{_place(value, last=last, at='at ')} [{low}, {high}]"
        case _ if value is None:
            return NONE
        case "diverges":
            ends = "" if interval is None else f" [{100 * interval['low']:.0f}, {100 * interval['high']:.0f}]"
            return f"{100 * value:.0f} % of seeds{ends}"
        case "ratio":
            ends = "unbounded" if interval is None else f"[{_even(interval['low'])}, {_even(interval['high'])}]"
            return f"× {_even(value)} {ends}"
        case _ if interval is None:
            return number(value)
    unit, scale = _UNITS.get(verdict["metric"], ("", 1.0))
    low, high = (_even(interval[end] / scale) for end in ("low", "high"))
    return f"{_even(value / scale, sign='+')}{unit} [{low}, {high}]"


def _place(x: float | None, *, last: float | None, at: str = "") -> str:
    """A place on a claim's axis: None and infinity lie beyond what was tried, for which a knee's last place stands too."""
    if x is None or math.isinf(x):
        return "beyond"
    return f"{at}{number(x)}{' or beyond' if x == last else ''}"


def _even(value: float, *, sign: str = "-") -> str:
    """Three significant digits, zeros kept, so that an interval's ends are equally long; whole from 1000 on."""
    shown = f"{value:{sign},.0f}" if abs(value) >= 999.5 else f"{value:{sign}#.3g}"
    return shown.rstrip(".").replace("-", _MINUS).replace(",", "\N{NARROW NO-BREAK SPACE}")


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


def as_yaml(value: object) -> str:
    """A setting's value as it is written in a study: null, true, [1, 2]."""
    return json.dumps(value) if isinstance(value, list | bool | None) else str(value)
