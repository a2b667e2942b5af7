"""Text that a trained run writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from knockout.corpus.encoding.encoders import ByteEncoder, SymbolEncoder
from knockout.corpus.lookup import find_by_digest
from knockout.declare.parts import LinearScaling, YarnScaling
from knockout.declare.rescale import with_rotary_scaling
from knockout.declare.sampling import GreedySampling, TemperatureSampling
from knockout.errors import CorpusError, InputError, RunError
from knockout.training.continuation import Continuation, _encode, continue_text
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


def test_numbers_that_are_no_symbols_are_never_written(run: Any, laboratory: Any) -> None:
    """The vocabulary is larger than the 16 symbols and end-of-text; this hot, every number is as probable."""
    assert load_network(run.folder).architecture.vocabulary > 17
    for seed in range(4):
        assert max(go_on(run, laboratory, sampling=TemperatureSampling(temperature=1e9), seed=seed).tokens) <= 16


def test_a_rotary_run_goes_on_past_its_context_with_its_angles_scaled(run: Any, laboratory: Any) -> None:
    plain, none, *scaled = (
        go_on(run, laboratory, prompt="1 2 3 " * 20, sampling=GreedySampling(), scaling=scaling, num_tokens=60).tokens
        for scaling in (None, "none", "linear:2", "ntk:2", "yarn:4")
    )
    assert plain == none
    network = load_network(run.folder)
    assert network.architecture.context < 60
    assert all(tokens for tokens in scaled)
    for text, kind in {"linear:2": LinearScaling(factor=2.0), "yarn:4": yarn(network)}.items():
        declared = with_rotary_scaling(network.architecture, scaling=kind)
        logits_BTV = load_network(run.folder, architecture=declared)(torch.tensor([[1, 2, 3] * 20])).logits_BTV
        first = go_on(run, laboratory, prompt="1 2 3 " * 20, num_tokens=1, sampling=GreedySampling(), scaling=text)
        assert first.tokens == (int(logits_BTV[0, -1, :17].argmax()),)


def yarn(network: Any) -> YarnScaling:
    return YarnScaling(factor=4.0, original_context=network.architecture.context)


@pytest.mark.parametrize(
    "text", ["", "linear", "linear:", "linear:0.5", "linear:nan", "ntk:1e300", "lin:2", "none:2", "yarn:x"]
)
def test_a_scaling_that_is_none_is_refused_in_one_line(run: Any, laboratory: Any, text: str) -> None:
    with pytest.raises(InputError, match="write linear:FACTOR, ntk:FACTOR, yarn:FACTOR or none") as raised:
        go_on(run, laboratory, scaling=text)
    assert "\n" not in str(raised.value)


def test_a_prompt_that_is_no_text_is_refused() -> None:
    with pytest.raises(InputError, match=r"prompt '\\udcff\\udcfe': not UTF-8 text"):
        _encode("\udcff\udcfe", encoder=ByteEncoder(vocabulary=512))


def test_a_token_that_stands_for_nothing_is_refused_and_not_wrapped() -> None:
    """327 is 71, an ASCII G, in a byte's eight bits."""
    for encoder in (ByteEncoder(vocabulary=512), SymbolEncoder(alphabet=16, vocabulary=512)):
        with pytest.raises(CorpusError, match="token 327 stands for nothing"):
            encoder.decode(np.array([1, 327, 2]))
    assert ByteEncoder(vocabulary=512).decode(np.array([71, 256])) == b"G"


@pytest.mark.parametrize("prompt", ["1 16", "abc", "-1", "9" * 5000, "1\n\udcff"])
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
