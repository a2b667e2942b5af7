"""What makes a run this run: a hash of the canonical JSON of everything that bears meaning.

The invariant: where and how a run is executed (device, workers, paths, addresses) is not an argument here, so it cannot
reach the hash. Only plain data is encoded; anything else raises.
"""

from __future__ import annotations

import hashlib
from typing import Any

from knockout.declare.architecture import Architecture
from knockout.declare.plain import canonical
from knockout.declare.recipe import Recipe

SEMANTICS = 1
"""Bumped by hand when the same declaration starts to mean another computation."""

IDENTITY_DIGITS = 20


def meaning(
    *, architecture: Architecture, recipe: Recipe, corpus: str, evaluation: dict[str, Any], seed: int
) -> dict[str, Any]:
    """Everything that bears meaning in a run, as plain data; `corpus` is the manifest's digest."""
    return {
        "semantics": SEMANTICS,
        "architecture": architecture.model_dump(mode="json"),
        "recipe": recipe.model_dump(mode="json"),
        "corpus": corpus,
        "evaluation": evaluation,
        "seed": seed,
    }


def identity(data: dict[str, Any]) -> str:
    """The run's identity: the first hex digits of the SHA-256 of its canonical JSON."""
    return hashlib.sha256(canonical(data).encode()).hexdigest()[:IDENTITY_DIGITS]


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted paths whose values differ between two meanings, with both values; None where there is none."""
    before, after = flatten(old), flatten(new)
    return {
        path: (before.get(path), after.get(path))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    }


def flatten(data: dict[str, Any], *, path: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted paths for keys."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{path}.{key}" if path else key
        flat |= flatten(value, path=name) if isinstance(value, dict) else {name: value}
    return flat
