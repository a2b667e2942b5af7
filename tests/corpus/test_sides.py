"""On which side of a corpus what is drawn more than once stands."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from knockout.corpus.generators.generated import entropy_rate
from knockout.corpus.overlap import check_disjoint
from knockout.corpus.prepare import Prepared, prepare
from knockout.corpus.preparing.workers import Here
from knockout.corpus.reading import open_split
from knockout.corpus.symbols import symbol_names
from knockout.corpus.verifying import faults
from knockout.declare.corpus import Corpus
from knockout.declare.generators import Generator
from knockout.declare.grammar import Grammar

README = {
    "kind": "grammar",
    "start": "s",
    "rules": {"s": {"a s": 0.5, "b": 0.5}},
    "words": {"a": 2, "b": {"x": 0.9, "y": 0.1}},
}


def prepared(folder: Path, source: Mapping[str, object]) -> Prepared:
    plain = {"corpus": "drawn", "source": source, "tokenizer": {"kind": "identity"}, "validation": 0.1}
    corpus = Corpus.model_validate_json(json.dumps(plain | {"evaluation": {"tokens": 1024, "segments": 4}}))
    return prepare(corpus, vocabulary=32, folder=folder, base=folder, workers=Here())


def documents(made: Prepared, split: str) -> list[tuple[int, ...]]:
    tokens = np.concatenate(open_split(made.folder, split=split).shards)
    ends = np.flatnonzero(tokens == made.manifest.end_of_text)
    return [tuple(part[:-1].tolist()) for part in np.split(tokens, ends + 1)[:-1]]


def grammar_nats(document: tuple[int, ...], names: tuple[str, ...]) -> float:
    """By hand: a step goes on or ends with chance 1/2, an `a` is one of two words, a `b` is x or y; the end is certain."""
    *_, last = document
    return 2 * math.log(2) * (len(document) - 1) + math.log(2) - math.log({"x": 0.9, "y": 0.1}[names[last]])


def copy_nats(document: tuple[int, ...], names: tuple[str, ...]) -> float:
    """By hand: a string of 1 to 4 of 3 symbols, a mark, and the string again, of which nothing is new."""
    length = (len(document) - 1) // 2
    return math.log(4) + length * math.log(3)


@pytest.fixture(scope="module")
def readme(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepared(tmp_path_factory.mktemp("readme"), README | {"documents": 16_384})


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    length = {"kind": "uniform", "least": 1, "most": 4}
    source = {"kind": "copy", "symbols": 3, "length": length, "copies": 1, "documents": 16_384}
    return prepared(tmp_path_factory.mktemp("copies"), source)


@pytest.mark.parametrize(("name", "nats"), [("readme", grammar_nats), ("copies", copy_nats)])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_true_source_reaches_the_floor_on_either_side_however_often_its_strings_repeat(
    request: pytest.FixtureRequest, name: str, nats: Callable[..., float], split: str
):
    made: Prepared = request.getfixturevalue(name)
    source = made.manifest.declaration.source
    assert isinstance(source, Generator)
    found = documents(made, split)
    names = symbol_names(source)
    losses = np.array([nats(document, names) for document in found])
    tokens = np.array([len(document) + 1 for document in found])
    floor = entropy_rate(source)
    # of a ratio of means over independent documents: the spread of what a document is off, over the root of their number
    error = np.std(losses - floor * tokens) / np.mean(tokens) / math.sqrt(len(found))
    assert made.manifest.counts.duplicates > 15_000
    assert abs(losses.sum() / tokens.sum() - floor) < 4 * error
    assert error < 0.02 * floor


def test_the_share_of_validation_is_that_of_the_draws(readme):
    # each of 16,384 documents falls there with chance 0.1: a standard deviation of 38.4
    assert abs(readme.manifest.splits.validation.documents - 1638.4) < 4 * 38.4


def test_copies_of_what_is_drawn_are_no_contamination(readme):
    train, validation = (open_split(readme.folder, split=split) for split in ("train", "validation"))
    assert set(documents(readme, "train")) & set(documents(readme, "validation"))
    check_disjoint(train, validation)
    assert list(faults(readme.folder, progress=lambda *_: None)) == []


def test_the_floor_of_the_readme_is_that_of_its_grammar_by_hand():
    # E[nats] / E[tokens]: one a and one b on average, and end-of-text
    source = Grammar.model_validate_json(json.dumps(README))
    entropy = 2 * math.log(2) + math.log(2) - 0.9 * math.log(0.9) - 0.1 * math.log(0.1)
    assert entropy_rate(source) == pytest.approx(entropy / 3, abs=1e-9)
