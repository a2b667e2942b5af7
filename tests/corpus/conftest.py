"""Corpora that the tests of this folder share."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from knockout.corpus.prepare import Prepared, prepare
from knockout.declare.corpus import Corpus

STDLIB = Path(sysconfig.get_paths()["stdlib"])


def declared(**settings: object) -> Corpus:
    """A corpus of two packages of the standard library, but for what `settings` say."""
    plain = {
        "corpus": "small",
        "source": {"kind": "files", "paths": [str(STDLIB / "json" / "*.py"), str(STDLIB / "email" / "*.py")]},
        "tokenizer": {"kind": "bpe"},
        "validation": 0.3,
        "evaluation": {"tokens": 4096, "segments": 8},
    }
    return Corpus.model_validate_json(json.dumps(plain | settings))


@pytest.fixture(scope="session")
def declare() -> Callable[..., Corpus]:
    return declared


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Two packages of the standard library, prepared with a vocabulary of 512."""
    folder = tmp_path_factory.mktemp("corpora")
    return prepare(declared(), vocabulary=512, folder=folder, base=folder)
