"""Ages and sizes as people write them: 30d, 12h, 1GB, 500 kB.

The invariant: what is shown can be given back as it is.
"""

from __future__ import annotations

import re

from knockout.errors import InputError, quoted

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def seconds(text: str) -> float:
    """An age in seconds.

    Raises:
        InputError: it is no number with a unit.
    """
    return _measure(text, units=_SECONDS, what="an age", example="30d")


def num_bytes(text: str) -> float:
    """A size in bytes; raises as `seconds`."""
    return _measure(text, units=_BYTES, what="a size", example="1GB")


def shown_bytes(count: float) -> str:
    """`1.5 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1_000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1_000
    return f"{count:.1f} TB"


def shown_age(age: float) -> str:
    """`3 d`, in the largest unit of which there is one."""
    fitting = [unit for unit, length in _SECONDS.items() if age >= length and unit != "w"]
    unit = fitting[-1] if fitting else "s"
    return f"{age / _SECONDS[unit]:.0f} {unit}"


def _measure(text: str, *, units: dict[str, float] | dict[str, int], what: str, example: str) -> float:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", text)
    by_name = {name.lower(): size for name, size in units.items()}
    if found is None or found[2].lower() not in by_name:
        raise InputError(f"{quoted(text)} is not {what}: give a number and one of {', '.join(units)}, as in {example}")
    return float(found[1]) * by_name[found[2].lower()]
