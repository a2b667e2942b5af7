"""What tells one night from another: the seeds that it takes, and the code that it runs.

The invariant: two nights share no seed, and no night one with a study as it is declared, whose seeds count from 0.
"""

from __future__ import annotations

import hashlib
from datetime import date
from functools import cache
from pathlib import Path

import knockout

FIRST_DAY = date(2020, 1, 1)
SEEDS_A_NIGHT = 100
"""Room for the seeds of one night; trials' seeds begin after the night of 2047-05-17."""


def first_seed_of(day: date) -> int:
    """The first seed of a day's sweep."""
    return ((day - FIRST_DAY).days + 1) * SEEDS_A_NIGHT


@cache
def code_digest() -> str:
    """Twelve hex digits that change with any file of the package."""
    package = Path(knockout.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
