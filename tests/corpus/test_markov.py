from __future__ import annotations

import math
from collections import defaultdict
from itertools import product

import numpy as np
import pytest

from knockout.corpus.generators.markov import MarkovChain, stationary
from knockout.corpus.prepare import prepare
from knockout.corpus.reading import open_split
from knockout.declare.generators import Markov
from knockout.errors import CorpusError


def entropy(*probabilities: float) -> float:
    return -sum(p * math.log(p) for p in probabilities if p)


def test_two_states_have_the_textbooks_stationary_distribution_and_rate():
    # Cover and Thomas (2006), example 4.1.1 and equation 4.32
    forth, back = 0.3, 0.1
    transitions = np.array([[1 - forth, forth], [back, 1 - back]])
    settled = stationary(transitions)
    np.testing.assert_allclose(settled, [back / (forth + back), forth / (forth + back)], atol=1e-12)
    rate = 0.25 * entropy(forth, 1 - forth) + 0.75 * entropy(back, 1 - back)
    endless = MarkovChain(1, transitions, settled, stop=1e-9)
    assert endless.entropy_rate() == pytest.approx(rate, abs=1e-6)


def test_documents_of_one_symbol_cost_one_symbol_in_two_tokens():
    chain = MarkovChain.draw(Markov(order=1, alphabet=3, length=1, seed=2))
    assert chain.entropy_rate() == pytest.approx(entropy(*chain.stationary_K) / 2)


def test_without_memory_the_rate_is_that_of_independent_symbols_and_a_coin():
    chain = MarkovChain.draw(Markov(order=0, alphabet=5, length=4, concentration=1.0, seed=3))
    symbol, coin = entropy(*chain.transitions_KA[0]), entropy(0.25, 0.75)
    assert chain.entropy_rate() == pytest.approx((4 * symbol + 4 * coin) / 5)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_the_true_models_cross_entropy_is_the_rate_within_sampling_error(order):
    source = Markov(order=order, alphabet=4, seed=11, documents=3000, length=20, concentration=0.5)
    chain = MarkovChain.draw(source)
    contexts = list(product(range(4), repeat=order))
    following = {context: chain.transitions_KA[index] for index, context in enumerate(contexts)}
    begin: dict[tuple[int, ...], float] = defaultdict(float)
    for index, context in enumerate(contexts):
        for length in range(order + 1):
            begin[context[:length]] += chain.stationary_K[index]

    def cost(document: list[int]) -> float:
        nats = -(len(document) - 1) * math.log(0.95) - math.log(0.05)
        for at, symbol in enumerate(document):
            past = tuple(document[max(0, at - order) : at])
            known = following[past][symbol] if at >= order else begin[(*past, symbol)] / begin[past]
            nats -= math.log(known)
        return nats

    documents = [document.tolist() for document in chain.documents(source)]
    costs = np.array([cost(document) for document in documents])
    tokens = np.array([len(document) + 1 for document in documents])
    measured = costs.sum() / tokens.sum()
    error = np.std(costs - measured * tokens) * math.sqrt(len(costs)) / tokens.sum()
    assert abs(measured - chain.entropy_rate()) < 4 * error
    assert error < 0.02


def test_lengths_are_geometric_with_the_declared_mean():
    source = Markov(order=2, alphabet=4, documents=20_000, length=50)
    lengths = np.array([len(document) for document in MarkovChain.draw(source).documents(source)])
    assert len(lengths) == 20_000
    assert lengths.min() == 1
    assert abs(lengths.mean() - 50) < 4 * math.sqrt(50 * 49 / 20_000)


def test_a_seed_gives_one_chain_and_another_seed_another():
    one, same, other = (MarkovChain.draw(Markov(alphabet=8, seed=seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.transitions_KA, same.transitions_KA)
    assert (one.transitions_KA != other.transitions_KA).any()


def test_a_chain_that_never_settles_is_refused():
    stuck = np.array([[1 - 1e-9, 1e-9], [3e-9, 1 - 3e-9]])
    with pytest.raises(CorpusError, match="no stationary distribution"):
        stationary(stuck)


def test_a_prepared_chain_has_its_symbols_as_tokens_and_its_rate_as_floor(declare, tmp_path):
    source = {"kind": "markov", "order": 2, "alphabet": 16, "documents": 600, "length": 100}
    corpus = declare(source=source, tokenizer={"kind": "identity"})
    manifest = prepare(corpus, vocabulary=32, folder=tmp_path, base=tmp_path).manifest
    [folder] = [path for path in tmp_path.iterdir() if path.is_dir()]
    tokens = open_split(folder, split="train").shards[0]
    assert (manifest.end_of_text, tokens.max(), manifest.tokenizer) == (16, 16, None)
    assert (tokens == 16).sum() == manifest.splits.train.documents
    assert manifest.splits.train.raw_bytes == (tokens != 16).sum()
    floors = manifest.floors
    assert floors.entropy_rate is not None
    assert floors.entropy_rate < floors.bigram < floors.unigram < math.log(17) + 0.01
    with pytest.raises(CorpusError, match="16 is too small: the 16 symbols and end-of-text are 17"):
        prepare(corpus, vocabulary=16, folder=tmp_path, base=tmp_path)
