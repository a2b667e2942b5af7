from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from knockout.corpus.generators.generated import entropy_rate, generate
from knockout.corpus.prepare import prepare
from knockout.corpus.reading import open_split
from knockout.declare.generators import Copy, FixedLength, GeometricLength, UniformLength

Document = tuple[int, ...]
SMALL = Copy(symbols=2, length=UniformLength(least=1, most=3), copies=2, documents=40_000)


def drawn(source: Copy) -> list[Document]:
    return [tuple(document.tolist()) for document in generate(source)]


def every(symbols: int, lengths: dict[int, float], copies: int) -> dict[Document, float]:
    """All documents there are and how likely each is, written down from what the task is."""
    found: dict[Document, float] = {}
    for length, chance in lengths.items():
        for string in product(range(symbols), repeat=length):
            found[string + (symbols, *string) * copies] = chance / symbols**length
    return found


def test_each_length_and_each_string_is_drawn_equally_often_and_the_floor_is_the_entropy_of_both():
    likely = every(2, {1: 1 / 3, 2: 1 / 3, 3: 1 / 3}, 2)
    counts = Counter(drawn(SMALL))
    assert set(counts) == set(likely)
    expected = {document: share * SMALL.documents for document, share in likely.items()}
    chi_squared = sum((counts[document] - times) ** 2 / times for document, times in expected.items())
    assert abs(chi_squared - (len(likely) - 1)) < 4 * math.sqrt(2 * (len(likely) - 1))
    nats = -math.fsum(share * math.log(share) for share in likely.values())
    length = math.fsum(share * len(document) for document, share in likely.items())
    assert entropy_rate(SMALL) == pytest.approx(nats / (length + 1), rel=1e-12)


def test_a_fixed_length_costs_nothing_and_half_of_the_document_neither():
    source = Copy(symbols=7, length=FixedLength(symbols=9), documents=50)
    assert entropy_rate(source) == pytest.approx(9 * math.log(7) / 20, rel=1e-12)
    assert all(document[:9] == document[10:] and document[9] == 7 and len(document) == 19 for document in drawn(source))


@pytest.mark.parametrize("mean", [1.0, 1.5, 12.0])
def test_geometric_lengths_are_drawn_as_declared_and_their_floor_is_the_sum_over_all_of_them(mean):
    source = Copy(symbols=4, length=GeometricLength(mean=mean), documents=40_000)
    chances = {n: (1 - 1 / mean) ** (n - 1) / mean for n in range(1, 1000)}
    nats = -math.fsum(p * (math.log(p) - n * math.log(4)) for n, p in chances.items() if p > 0)
    assert entropy_rate(source) == pytest.approx(nats / (2 * (mean + 1)), rel=1e-9)
    lengths = Counter(document.index(4) for document in drawn(source))
    often = {n: p * source.documents for n, p in chances.items() if p * source.documents > 10}
    chi_squared = sum((lengths[n] - times) ** 2 / times for n, times in often.items())
    assert abs(chi_squared - len(often)) < 5 * math.sqrt(2 * len(often))


def oracle(source: Copy, document: list[int]) -> Iterator[float]:
    """The probability of the token at each place and of end-of-text, told from the tokens before it alone."""
    assert isinstance(source.length, UniformLength)
    least, most = source.length.least, source.length.most
    for place, token in enumerate([*document, -1]):
        before = document[:place]
        if source.symbols in before:
            period = before.index(source.symbols) + 1
            whole = (source.copies + 1) * period - 1
            yield float(token == (-1 if place == whole else before[place - period]))
        else:
            stops = 0.0 if place < least else 1 / (most + 1 - place)
            yield stops if token == source.symbols else (1 - stops) / source.symbols


def test_a_predictor_that_looks_a_period_back_reaches_the_floor_of_the_prepared_corpus(declare, tmp_path):
    source = {"kind": "copy", "symbols": 9, "length": {"kind": "uniform", "least": 5, "most": 12}, "copies": 2}
    corpus = declare(source=source | {"documents": 6000}, tokenizer={"kind": "identity"})
    prepared = prepare(corpus, vocabulary=32, folder=tmp_path, base=tmp_path)
    tokens = np.concatenate(open_split(prepared.folder, split="validation").shards)
    ends = np.flatnonzero(tokens == prepared.manifest.end_of_text)
    documents = [part[part != prepared.manifest.end_of_text].tolist() for part in np.split(tokens, ends + 1)[:-1]]
    nats = np.array([-sum(map(math.log, oracle(corpus.source, document))) for document in documents])
    lengths = np.array([len(document) + 1 for document in documents])
    floors = prepared.manifest.floors
    assert floors.entropy_rate is not None
    surplus = nats - floors.entropy_rate * lengths
    error = surplus.std() / math.sqrt(len(documents))
    assert abs(surplus.mean()) < 4 * error
    assert error / lengths.mean() < 0.01
    assert floors.entropy_rate < floors.bigram < floors.unigram < math.log(32)


def test_documents_are_plain_integer_arithmetic_on_a_fixed_stream():
    source = Copy(symbols=5, length=UniformLength(least=2, most=4), seed=7, documents=20)
    raw = np.random.Philox(np.random.SeedSequence([source.seed, 1, 0])).random_raw
    lengths = [2 + number % 3 for number in raw(20).tolist()]
    symbols = iter([number % 5 for number in raw(sum(lengths)).tolist()])
    strings = [tuple(next(symbols) for _ in range(length)) for length in lengths]
    assert drawn(source) == [(*string, 5, *string) for string in strings]
