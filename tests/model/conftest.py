"""Small architectures: the default one, and one for every kind of part."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kinds import KINDS, declare_small

from knockout.declare.architecture import Architecture


@pytest.fixture
def declare() -> Callable[..., Architecture]:
    """Makes the small default architecture, with changes."""
    return declare_small


@pytest.fixture(params=KINDS.values(), ids=list(KINDS))
def each_kind(request: pytest.FixtureRequest) -> Architecture:
    """The small default architecture with one slot changed, for every kind there is."""
    return request.param


CAUSAL = {name: kind for name, kind in KINDS.items() if kind.causal}


@pytest.fixture(params=CAUSAL.values(), ids=list(CAUSAL))
def each_causal_kind(request: pytest.FixtureRequest) -> Architecture:
    """As each_kind, without those that are made to read both sides."""
    return request.param
