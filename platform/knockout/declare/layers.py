"""Layers that differ: a pattern of slots repeated over the depth, and slots of single layers laid over it.

The invariant: a layer's slots are those of the architecture, with those of its place in the pattern laid over them, and
those of its own entry over both; a slot is replaced as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from knockout.declare.base import Conflict, Declaration
from knockout.declare.parts import Attention, BlockKind, FeedForward, Norm, Residual

LAYER_KEY = re.compile(r"(\d+)(?:-(\d+))?")
"""A layer counted from 0, or the first and the last of a run of them: "3", "0-2"."""


class LayerSlots(Declaration):
    """What a layer holds in place of the architecture's own; a slot that is not given stays as it is."""

    attention: Attention | None = None
    """How tokens read one another."""
    ffn: FeedForward | None = None
    """What is done at every position alone."""
    residual: Residual | None = None
    """How a branch joins the stream."""
    norm: Norm | None = None
    """Which normalisation, and where; the norm before the head is the architecture's own."""
    block: BlockKind | None = None
    """In which order the two branches run."""

    @property
    def given(self) -> dict[str, Declaration]:
        """The slots that are given, by name."""
        return {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}


@dataclass(frozen=True)
class Placed:
    """A slot of one layer, and the path at which it was declared."""

    slot: Declaration
    path: str


def slots_of_layer(index: int, *, pattern: Sequence[LayerSlots], layers: Mapping[str, LayerSlots]) -> dict[str, Placed]:
    """The slots that layer `index`, counted from 0, does not share with the architecture, by name."""
    found = {}
    if pattern:
        place = index % len(pattern)
        found |= {name: Placed(slot, f"pattern.{place}.{name}") for name, slot in pattern[place].given.items()}
    for key, slots in layers.items():
        if index in (layer_range(key) or ()):
            found |= {name: Placed(slot, f"layers.{key}.{name}") for name, slot in slots.given.items()}
    return found


def layer_range(key: str) -> range | None:
    """The layers that a key of `layers` stands for; None when it is no such key."""
    found = LAYER_KEY.fullmatch(key)
    return range(int(found[1]), int(found[2] or found[1]) + 1) if found else None


def layer_conflicts(*, pattern: Sequence[LayerSlots], layers: Mapping[str, LayerSlots], depth: int) -> Iterator[Conflict]:
    """What cannot stand together in a pattern and entries for single layers."""
    if len(pattern) > depth:
        yield "pattern", len(pattern), f"a pattern of {len(pattern)} layers does not fit into depth {depth}"
    for key in layers:
        covered = layer_range(key)
        if covered is None:
            yield f"layers.{key}", key, "a layer is its number, or the first and the last of a run: '3', '0-2'"
        elif not covered:
            yield f"layers.{key}", key, "the last layer of a run comes before its first"
        elif covered[-1] >= depth:
            yield f"layers.{key}", key, f"there is no layer {covered[-1]}; depth {depth} has layers 0 to {depth - 1}"
    yield from _overlaps(layers)


def _overlaps(layers: Mapping[str, LayerSlots]) -> Iterator[Conflict]:
    keys = list(layers)
    for place, key in enumerate(keys):
        for other in keys[:place]:
            shared = layers[key].given.keys() & layers[other].given.keys()
            if shared and set(layer_range(key) or ()) & set(layer_range(other) or ()):
                yield f"layers.{key}", key, f"{', '.join(sorted(shared))} of these layers is also given under '{other}'"
