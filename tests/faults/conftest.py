"""Real commands on tiny studies, and the uninterrupted runs that interrupted ones are held against."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the helpers beside the tests

from commands import DEADLINE_SECONDS, TINY, Home, opened
from killing import KILLS_IN_CI, Laboratory
from studies import write_project

from knockout.corpus.prepare import prepare
from knockout.declare.corpus import Corpus
from knockout.declare.document import parse_document
from knockout.declare.load import validate
from knockout.services.locks import locked


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=KILLS_IN_CI, help="Kills of training processes at random points.")


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def home(tmp_path: Path, project: Path) -> Iterator[Home]:
    yield from opened(tmp_path / "home", project=project)


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, project: Path, worker_id: str) -> Iterator[Home]:
    """A workspace in which the study of the kills has run without any; one for all processes of the tests."""
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "uninterrupted"
    folder.mkdir(exist_ok=True)
    for home in opened(folder / "home", project=project):
        with locked(folder / "lock", timeout_seconds=DEADLINE_SECONDS):
            code, said = home.run("resumed") if "done" not in home.submission_states() else (0, "")
        assert code == 0, said
        yield home


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    folder = tmp_path_factory.mktemp("laboratory")
    corpus = validate(parse_document(TINY, file="tiny"), model=Corpus)
    yield from Laboratory.opened(folder, corpus=prepare(corpus, vocabulary=32, folder=folder / "corpora", base=folder))
