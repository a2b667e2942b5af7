"""Corpora that the tests of this folder share."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from knockout.corpus.encoding.encoders import open_encoder
from knockout.corpus.prepare import Prepared, prepare
from knockout.corpus.reading import open_split
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


def documents_of(prepared: Prepared, split: str) -> list[str]:
    """The documents that stand in a split, in order."""
    opened = open_split(prepared.folder, split=split)
    tokens = opened.gather(np.array([0]), length=opened.num_tokens)[0]
    encoder = open_encoder(prepared.folder, manifest=prepared.manifest)
    ends = np.flatnonzero(tokens == prepared.manifest.end_of_text)
    return [encoder.decode(part).decode() for part in np.split(tokens, ends + 1)[:-1]]


@pytest.fixture(scope="session")
def read_back() -> Callable[[Prepared, str], list[str]]:
    return documents_of
