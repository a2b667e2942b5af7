"""What tells one night from another: the seeds that it takes, and the code that it runs.

The invariant: two nights share no seed, and no night one with a study as it is declared, whose seeds count from 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import date
from functools import cache
from pathlib import Path

import knockout
from knockout.history.rows import Row

FIRST_DAY = date(2020, 1, 1)
SEEDS_A_NIGHT = 100
"""Room for the seeds of one night; trials' seeds begin after the night of 2047-05-17."""


def first_seed_of(day: date) -> int:
    """The first seed of a day's sweep."""
    return ((day - FIRST_DAY).days + 1) * SEEDS_A_NIGHT


def num_nights(past: Iterable[Row], *, besides: int) -> int:
    """Earlier nights, each set of seeds once; not the one whose first seed is `besides`."""
    return len({row.first_seed for row in past} - {besides})


def repeats(tonight: Iterable[Row], *, past: Iterable[Row]) -> float | None:
    """When the same studies last had the same seeds, in seconds since 1970: that is the same evidence; None if never."""
    keys = {(row.study, row.first_seed) for row in tonight}
    return max((row.time for row in past if (row.study, row.first_seed) in keys), default=None)


@cache
def code_digest() -> str:
    """Twelve hex digits that change with any file of the package."""
    package = Path(knockout.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
