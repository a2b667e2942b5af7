"""What expectations are made of: names of variants, ends of a range, and the rules that both keep.

The invariant: whatever names a variant can say where, so that a wrong name is told at its own line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from knockout.declare.base import Conflict, Declaration, Name, conflicts

BASELINE: Name = "baseline"
"""The variant that a comparison is against when a claim names none."""

NonNegativeFloat = Annotated[float, Field(ge=0.0)]
Ends = Annotated[list[float | None], Field(min_length=2, max_length=2)]
"""A lower and an upper end, each may be null: none on that side."""
Place = tuple[str | int, ...]
"""Where in an expectation something is written."""


class Expected(Declaration):
    """What is expected. Written back under the key `is`."""

    model_config = ConfigDict(serialize_by_alias=True)

    @property
    def named(self) -> Mapping[Place, Name]:
        """Every variant that the expectation names, by the place where it does."""
        raise NotImplementedError


class Gap(Declaration):
    """The difference between two variants, the first minus the second."""

    variant: Name
    """The variant that the other is taken from."""
    than: Name = BASELINE
    """The variant that is taken from it."""

    @model_validator(mode="after")
    def _two_variants(self) -> Gap:
        conflicts("Gap", list(alike(self.variant, than=self.than, at="than")))
        return self


def inside(ends: Sequence[float | None], *, x: float) -> bool:
    """Whether x lies between two ends, both included; null is no end."""
    low, high = ends
    return (low is None or low <= x) and (high is None or x <= high)


def alike(variant: str, *, than: str, at: str) -> Iterator[Conflict]:
    """What is wrong with comparing one variant with another."""
    if variant == than:
        yield at, than, f"'{variant}' cannot be compared with itself: name another variant"


def ordered(ends: Sequence[float | None], *, at: str) -> Iterator[Conflict]:
    """What is wrong with two ends."""
    low, high = ends
    if low is None and high is None:
        yield at, ends, "give at least one of the two ends"
    elif low is not None and high is not None and low > high:
        yield at, ends, f"the lower end {low:g} is over the upper one {high:g}"
