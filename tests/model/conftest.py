"""Small architectures: the default one, and one for every member of every slot, read off the unions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest

from knockout.declare.architecture import Architecture

DIMENSIONS: dict[str, Any] = {"width": 16, "depth": 2, "heads": 4, "context": 12, "vocabulary": 11}


def declare_small(**changes: Any) -> Architecture:
    return Architecture.model_validate({**DIMENSIONS, **changes})


def _every_kind() -> dict[str, Architecture]:
    found = {}
    for slot, field in Architecture.model_fields.items():
        annotation: Any = field.annotation
        for member in get_args(annotation) or (annotation,):
            if "kind" not in getattr(member, "model_fields", {}):
                continue
            required = {name: 2 for name, inner in member.model_fields.items() if inner.is_required()}
            kind = member.model_fields["kind"].default
            found[f"{slot}-{kind}"] = declare_small(**{slot: {"kind": kind, **required}})
    return found


KINDS = _every_kind()


@pytest.fixture
def declare() -> Callable[..., Architecture]:
    """Makes the small default architecture, with changes."""
    return declare_small


@pytest.fixture(params=KINDS.values(), ids=list(KINDS))
def each_kind(request: pytest.FixtureRequest) -> Architecture:
    """The small default architecture with one slot changed, for every kind there is."""
    return request.param
