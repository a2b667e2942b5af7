"""The one text of plain data, which identities are hashed from.

The invariant: equal data have equal texts, whatever the order of their keys, and nothing but plain data has one.
"""

from __future__ import annotations

import json
import math
from typing import Any


def canonical(data: Any) -> str:
    """JSON with sorted keys and no spaces.

    Raises:
        TypeError: something in it is not plain data, or is a number that JSON does not have.
    """
    _check(data, path="")
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _check(data: Any, *, path: str) -> None:
    match data:
        case None | bool() | int() | str():
            return
        case float() if math.isfinite(data):
            return
        case dict():
            for key, value in data.items():
                if type(key) is not str:
                    raise TypeError(f"{path}: the key {key!r} is not a string")
                _check(value, path=f"{path}.{key}")
        case list() | tuple():
            for index, value in enumerate(data):
                _check(value, path=f"{path}[{index}]")
        case _:
            raise TypeError(f"{path or 'the value'}: {data!r} is not plain data")
