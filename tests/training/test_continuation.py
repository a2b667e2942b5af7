"""Text that a trained run writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from knockout.corpus.lookup import find_by_digest
from knockout.declare.sampling import GreedySampling, TemperatureSampling
from knockout.errors import CorpusError, InputError, RunError
from knockout.training.continuation import Continuation, continue_text
from knockout.training.trained import load_network

ROTARY = {"position": {"kind": "rotary"}}


@pytest.fixture(scope="module")
def run(laboratory: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = laboratory.declare(tmp_path_factory.mktemp("continuation"), **ROTARY)
    assert laboratory.train(found) == 0
    return found


def go_on(run: Any, laboratory: Any, **changes: Any) -> Continuation:
    settings = {"prompt": "1 2 3", "num_tokens": 20, "sampling": TemperatureSampling(), "seed": 0, **changes}
    return continue_text(run.folder, corpora=laboratory.corpus.folder.parent, **settings)


def test_a_run_goes_on_from_a_prompt_in_its_corpus_own_symbols(run: Any, laboratory: Any) -> None:
    written = go_on(run, laboratory)
    assert written.prompt_tokens == 3
    assert 1 <= len(written.tokens) <= 20
    assert [int(word) for word in written.text.split()] == [token for token in written.tokens if token != 16]


def test_the_seed_decides(run: Any, laboratory: Any) -> None:
    one, again, other = (go_on(run, laboratory, seed=seed).tokens for seed in (1, 1, 2))
    assert one == again != other


def test_greedy_follows_the_trained_network(run: Any, laboratory: Any) -> None:
    written = go_on(run, laboratory, num_tokens=1, sampling=GreedySampling())
    logits_BTV = load_network(run.folder)(torch.tensor([[1, 2, 3]])).logits_BTV
    assert written.tokens == (int(logits_BTV[0, -1].argmax()),)


def test_an_empty_prompt_is_the_beginning_of_a_text(run: Any, laboratory: Any) -> None:
    written = go_on(run, laboratory, prompt="", num_tokens=1, sampling=GreedySampling())
    logits_BTV = load_network(run.folder)(torch.tensor([[16]])).logits_BTV
    assert written.tokens == (int(logits_BTV[0, -1].argmax()),)


@pytest.mark.parametrize("prompt", ["1 16", "abc", "-1"])
def test_a_prompt_that_is_no_symbols_is_refused(run: Any, laboratory: Any, prompt: str) -> None:
    with pytest.raises(InputError, match="give numbers from 0 to 15"):
        go_on(run, laboratory, prompt=prompt)


def test_a_run_without_a_result_writes_nothing(laboratory: Any, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no finished run"):
        go_on(laboratory.declare(tmp_path), laboratory)


def test_a_missing_corpus_is_named(run: Any, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"no corpus in .* has the digest"):
        continue_text(run.folder, corpora=tmp_path, prompt="", num_tokens=1, sampling=GreedySampling(), seed=0)


def test_a_corpus_is_found_beside_damaged_ones(laboratory: Any, tmp_path: Path) -> None:
    for name, text in (("empty", ""), ("list", "[]"), ("broken", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(text)
    (tmp_path / "good").symlink_to(laboratory.corpus.folder)
    digest = laboratory.corpus.manifest.digest
    assert find_by_digest(digest, folder=tmp_path).manifest == laboratory.corpus.manifest
