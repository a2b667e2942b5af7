"""Separate named random streams from one seed: data order, initialisation and dropout never share a generator."""

from __future__ import annotations

import hashlib


def derived(seed: int, *names: str | int) -> int:
    """A 63-bit seed for a named stream, the same on every machine and in every version."""
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
