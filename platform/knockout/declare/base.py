"""The base of every declaration: frozen, strict, and closed to keys that it does not know."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError


class Declaration(BaseModel):
    """What a user writes. Frozen; an unknown key, a wrong type or a non-finite number is an error at load."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True)


Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._+-]{0,79}$")]
"""A name that is safe as a file name and a tag: lower-case letters, digits and . _ + - ."""

MOST = 16_777_216
"""No width, number of parts or of tokens in a window is larger; a larger one is a slip of the keyboard."""

Positive = Annotated[int, Field(ge=1, le=MOST)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[int, Field(ge=0, le=MOST)]
Depth = Annotated[int, Field(ge=0, le=10_000)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Tokens = Annotated[int, Field(ge=1, le=10**15)]
"""Tokens of a whole training."""
Probability = Annotated[float, Field(ge=0.0, le=1.0)]


Conflict = tuple[str, object, str]
"""A dotted path, the value there, and what would be right."""


def conflicts(model: str, found: list[Conflict]) -> None:
    """Refuse combinations of settings from inside a model validator, all of them at once.

    Raises ValidationError when `found` is not empty.
    """
    if not found:
        return
    details = [
        InitErrorDetails(
            type=PydanticCustomError("conflict", "{rule}", {"rule": rule}), loc=tuple(path.split(".")), input=value
        )
        for path, value, rule in found
    ]
    raise ValidationError.from_exception_data(model, details)
