"""One thing that is wrong in a workspace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What is wrong, where, and what sets it right."""

    kind: str
    """What it is, in a word or two: orphan, damaged run, …"""
    where: str
    """The file or folder, as seen from the workspace; or whose entry it is."""
    what: str
    """What is wrong with it."""
    remedy: str
    """What repairing does; where it cannot, what to do."""
    repair: Callable[[], object] | None = None
    """Sets it right; None where only the user can. Raises a KnockoutError or OSError when it cannot."""
