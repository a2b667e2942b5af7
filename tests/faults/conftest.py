"""Real commands on tiny studies, and the uninterrupted runs that interrupted ones are held against."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the helpers beside the tests

from killing import KILLS_IN_CI, Laboratory
from place import TINY, Place, opened, write_project

from knockout.corpus.prepare import prepare
from knockout.declare.corpus import Corpus
from knockout.declare.document import parse_document
from knockout.declare.load import validate


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=KILLS_IN_CI, help="Kills of training processes at random points.")


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def place(tmp_path: Path, project: Path) -> Iterator[Place]:
    yield from opened(tmp_path / "home", project=project)


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Iterator[Place]:
    """A workspace in which the study of the kills has run without any."""
    for place in opened(tmp_path_factory.mktemp("uninterrupted") / "home", project=project):
        code, said = place.run("resumed")
        assert code == 0, said
        yield place


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    folder = tmp_path_factory.mktemp("laboratory")
    corpus = validate(parse_document(TINY, file="tiny"), model=Corpus)
    yield from Laboratory.opened(folder, corpus=prepare(corpus, vocabulary=32, folder=folder / "corpora", base=folder))
