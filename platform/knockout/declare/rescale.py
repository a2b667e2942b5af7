"""A trained architecture read at longer contexts.

The invariant: only what holds no weights changes, so the trained weights load as they are.
"""

from __future__ import annotations

from typing import Any

from knockout.declare.architecture import Architecture
from knockout.declare.parts import RotaryPosition, RotaryScaling
from knockout.errors import InputError


def with_rotary_scaling(architecture: Architecture, *, scaling: RotaryScaling) -> Architecture:
    """The same architecture with its rotary angles scaled, and nothing else changed.

    Raises:
        InputError: its positions are not rotary.
        ValidationError: the scaling does not go with its heads.
    """
    if not isinstance(architecture.position, RotaryPosition):
        raise InputError(f"position.kind: only rotary positions can be scaled, and these are {architecture.position.kind}")
    position: dict[str, Any] = {**architecture.position.model_dump(), "scaling": scaling.model_dump()}
    return Architecture.model_validate({**architecture.model_dump(), "position": position})
