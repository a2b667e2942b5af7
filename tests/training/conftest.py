"""Runs of a tiny chain: a corpus of 60 documents, a network of 7,360 parameters, a step in under five milliseconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from bench import Bench

from knockout.corpus.prepare import Prepared, prepare
from knockout.declare.architecture import Architecture
from knockout.declare.corpus import Corpus
from knockout.declare.document import Document
from knockout.declare.recipe import Recipe
from knockout.declare.settings import defaults
from knockout.ledger.identity import identity, meaning
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import open_workspace, write_json
from knockout.services.environment import quiet_environment
from knockout.training.launcher import Child, Nursery
from knockout.training.spec import MEANING, Runtime

DEADLINE_SECONDS = 180.0
CORPUS = Corpus.model_validate_json(
    """{"corpus": "tiny", "tokenizer": {"kind": "identity"}, "validation": 0.2, "evaluation": {"tokens": 256, "segments": 8},
    "source": {"kind": "markov", "order": 1, "alphabet": 16, "documents": 60, "length": 60}}"""
)
SETTINGS: dict[str, Any] = {
    "width": 16, "heads": 2, "depth": 2, "context": 16, "vocabulary": 32, "batch": 4, "tokens": 6400,
    "learning_rate": 0.005, "warmup_steps": 10, "accumulate": 2, "dropout": 0.1, "evaluations": 4,
}  # fmt: skip
"""100 steps of 64 tokens: more than two epochs of the corpus, with accumulation, dropout, warm-up and cosine."""


@dataclass(frozen=True)
class Tiny:
    """A run's declaration and its folder."""

    folder: Path
    identity: str
    meaning: dict[str, Any]
    architecture: Architecture
    recipe: Recipe

    @property
    def num_steps(self) -> int:
        return self.recipe.num_steps(context=self.architecture.context)


@dataclass(frozen=True)
class Laboratory:
    """A warm nursery, and the corpus."""

    nursery: Nursery
    corpus: Prepared

    def declare(self, place: Path, *, seed: int = 0, **changes: Any) -> Tiny:
        """A run in a folder of its own under `place`, named by its identity."""
        architecture, recipe = defaults().over(Document({**SETTINGS, **changes}, {})).resolve()
        evaluation = {**self.corpus.manifest.evaluation.model_dump(mode="json"), "window": architecture.context}
        data = meaning(
            architecture=architecture, recipe=recipe, corpus=self.corpus.manifest.digest, evaluation=evaluation, seed=seed
        )
        folder = place / identity(data)
        folder.mkdir(parents=True)
        write_json(folder / MEANING, data=data)
        return Tiny(folder, identity(data), data, architecture, recipe)

    def runtime(self, *, checkpoint_seconds: float = 30.0, corpus: Path | None = None) -> Runtime:
        return Runtime(corpus=str(corpus or self.corpus.folder), checkpoint_seconds=checkpoint_seconds)

    def launch(self, run: Tiny, *, checkpoint_seconds: float = 30.0, corpus: Path | None = None, **placed: Any) -> Child:
        runtime = replace(self.runtime(checkpoint_seconds=checkpoint_seconds, corpus=corpus), **placed)
        return self.nursery.launch(run.folder, runtime=runtime, environment={})

    def train(self, run: Tiny, *, checkpoint_seconds: float = 30.0, corpus: Path | None = None, **placed: Any) -> int | None:
        """Train a run until its process ends, `placed` on devices; the exit code."""
        child = self.launch(run, checkpoint_seconds=checkpoint_seconds, corpus=corpus, **placed)
        assert child.ended.wait(DEADLINE_SECONDS)
        return child.code


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    place = tmp_path_factory.mktemp("laboratory")
    nursery = Nursery(quiet_environment(place), log=place / "nursery.log")
    corpus = prepare(CORPUS, vocabulary=32, folder=place / "corpora", base=place)
    yield Laboratory(nursery, corpus)
    nursery.close()


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], object]], None]:
    """Wait until a condition holds; fails when it does not within the deadline."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.002)

    return wait


@pytest.fixture
def bench(laboratory: Laboratory, tmp_path: Path) -> Iterator[Bench]:
    ledger = Ledger(open_workspace(tmp_path / "home"))
    yield Bench(laboratory, ledger)
    ledger.close()
