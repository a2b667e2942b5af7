"""A trained architecture read at longer contexts.

The invariant: only what holds no weights changes, so the trained weights load as they are.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from knockout.declare.architecture import Architecture
from knockout.declare.parts import RotaryPosition, RotaryScaling
from knockout.errors import InputError

LARGEST_FACTOR = 1e6
"""Of a scaling that is given as text: far beyond any context, and far from the end of float64."""


def with_rotary_scaling(architecture: Architecture, *, scaling: RotaryScaling) -> Architecture:
    """The same architecture with its rotary angles scaled, and nothing else changed.

    Raises:
        InputError: its positions are not rotary, or the scaling does not go with its heads.
    """
    if not isinstance(architecture.position, RotaryPosition):
        raise InputError(f"position.kind: only rotary positions can be scaled, and these are {architecture.position.kind}")
    position: dict[str, Any] = {**architecture.position.model_dump(), "scaling": scaling.model_dump()}
    try:
        return Architecture.model_validate({**architecture.model_dump(), "position": position})
    except ValidationError as error:
        problem = error.errors()[0]
        raise InputError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None


def rotary_scaling(text: str, *, architecture: Architecture) -> RotaryScaling:
    """A scaling written as `linear:2`, `ntk:2`, `yarn:4` or `none`: its kind, and the longest context over the trained one.

    YaRN's trained context is the architecture's.

    Raises:
        InputError: the text is none of these.
    """
    kind, colon, factor = text.partition(":")
    trained = {"original_context": architecture.context} if kind == "yarn" else {}
    try:
        given = {"factor": float(factor)} if colon else {}
        scaling = TypeAdapter(RotaryScaling).validate_python({"kind": kind, **given, **trained})
    except ValueError:
        scaling = None
    if scaling is None or getattr(scaling, "factor", 1.0) > LARGEST_FACTOR:
        raise InputError(
            f"rotary scaling '{text}': write linear:FACTOR, ntk:FACTOR, yarn:FACTOR or none; FACTOR is the longest context "
            f"over the trained one, from 1 to {LARGEST_FACTOR:,.0f}"
        )
    return scaling
