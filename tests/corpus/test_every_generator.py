"""What every generator of the union keeps to; each has a file of its own for what it draws."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from knockout.corpus.generators.generated import generate
from knockout.declare.generators import Generator

VARIED: dict[str, dict[str, Any]] = {
    "dyck": {"brackets": 64, "groups": 30.0},
    "grammar": {
        "start": "s",
        "rules": {"s": {"one": 0.5, "one s": 0.5}, "one": {"name": 0.4, "the name": 0.6}},
        "words": {"name": 3000, "the": {"the": 1.0}},
    },
}
"""With what a kind has so many documents that a few of them all differ."""


def declared(kind: type[Any], **settings: object) -> Generator:
    plain = VARIED.get(kind.model_fields["kind"].default, {})
    return kind.model_validate_json(json.dumps(plain | {"documents": 57} | settings))


def drawn(source: Generator) -> list[tuple[int, ...]]:
    return [tuple(document.tolist()) for document in generate(source)]


every_generator = pytest.mark.parametrize("kind", get_args(Generator), ids=lambda kind: kind.__name__)


@every_generator
def test_a_seed_gives_one_corpus_and_another_seed_another(kind: type[Any]):
    assert drawn(declared(kind)) == drawn(declared(kind))
    assert drawn(declared(kind)) != drawn(declared(kind, seed=1))


@every_generator
@pytest.mark.parametrize("symbols", [20, 500])
def test_every_document_is_drawn_in_groups_of_any_size(kind: type[Any], symbols: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("knockout.corpus.generators.drawing.GROUP_SYMBOLS", symbols)
    documents = drawn(declared(kind))
    assert len(set(documents)) == len(documents) == 57
