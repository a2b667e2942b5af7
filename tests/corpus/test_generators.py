from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise, permutations, product

import numpy as np
import pytest

from knockout.corpus.generators.generated import entropy_rate, generate
from knockout.corpus.prepare import prepare
from knockout.corpus.reading import open_split
from knockout.declare.generators import Composition, Generator, Recall
from knockout.errors import CorpusError

Document = tuple[int, ...]
RECALL = Recall(keys=3, values=2, pairs=2, queries=2, distance=2, documents=40_000)
COMPOSITION = Composition(symbols=5, links=4, hops=2, queries=1, documents=200_000)


def every_recall(source: Recall) -> Iterator[Document]:
    """All documents there are, each as likely as any other, written down from what the task is."""
    values = range(source.keys, source.keys + source.values)
    for keys in permutations(range(source.keys), source.pairs):
        for bound in product(values, repeat=source.pairs):
            table = dict(zip(keys, bound, strict=True))
            listed = [symbol for pair in table.items() for symbol in pair]
            for asked in product(keys, repeat=source.queries):
                answers = [symbol for key in asked for symbol in (key, table[key])]
                yield (*listed, *[source.keys + source.values] * source.distance, *answers)


def walk(leads: dict[int, int], start: int, hops: int) -> int:
    for _ in range(hops):
        start = leads[start]
    return start


def every_composition(source: Composition) -> Iterator[Document]:
    """All documents there are: every function that runs through some of the symbols before it comes back."""
    for order in permutations(range(source.symbols), source.links):
        asked = list(product(range(1, source.hops + 1), order))
        for images in permutations(order):
            leads = dict(zip(order, images, strict=True))
            if len({walk(leads, order[0], hops) for hops in range(source.links)}) < source.links:
                continue
            told = [symbol for link in leads.items() for symbol in link]
            for queries in product(asked, repeat=source.queries):
                answers = [(source.symbols + hops - 1, start, walk(leads, start, hops)) for hops, start in queries]
                yield (*told, *(symbol for answer in answers for symbol in answer))


def drawn(source: Generator) -> list[Document]:
    return [tuple(document.tolist()) for document in generate(source)]


@pytest.mark.parametrize(
    ("source", "every"),
    [(RECALL, list(every_recall(RECALL))), (COMPOSITION, list(every_composition(COMPOSITION)))],
    ids=["recall", "composition"],
)
def test_each_document_that_the_task_allows_is_drawn_equally_often_and_no_other(source, every):
    counts = Counter(drawn(source))
    assert set(counts) == set(every)
    assert len(set(every)) == len(every)
    expected = source.documents / len(every)
    chi_squared = sum((count - expected) ** 2 / expected for count in counts.values())
    freedom = len(every) - 1
    assert abs(chi_squared - freedom) < 4 * math.sqrt(2 * freedom)
    assert entropy_rate(source) == pytest.approx(math.log(len(every)) / (len(every[0]) + 1), rel=1e-12)


def entropy(counts: Iterable[int]) -> float:
    total = sum(counts := list(counts))
    return -math.fsum(count / total * math.log(count / total) for count in counts)


def conditional_entropies(every: list[Document]) -> list[float]:
    """Of each place given all before it, by the chain rule (Cover and Thomas 2006, theorem 2.2.1)."""
    blocks = [entropy(Counter(document[:length] for document in every).values()) for length in range(len(every[0]) + 1)]
    return [after - before for before, after in pairwise(blocks)]


def test_each_token_of_recall_costs_the_logarithm_of_its_choices_and_answers_nothing():
    found = conditional_entropies(list(every_recall(RECALL)))
    assert found == pytest.approx([math.log(left) for left in (3, 2, 2, 2, 1, 1, 2, 1, 2, 1)], abs=1e-9)
    assert sum(found) / (len(found) + 1) == pytest.approx(entropy_rate(RECALL), rel=1e-9)


def test_a_query_of_composition_costs_the_logarithm_of_hops_and_links_and_its_answer_nothing():
    found = conditional_entropies(list(every_composition(COMPOSITION)))
    assert found[:2] == pytest.approx([math.log(5), math.log(4)], abs=1e-9)
    assert found[7:] == pytest.approx([0.0, math.log(2), math.log(4), 0.0], abs=1e-9)
    assert sum(found) / (len(found) + 1) == pytest.approx(entropy_rate(COMPOSITION), rel=1e-9)


def evenly(symbols: Iterable[int], share: float = 1.0) -> dict[int, float]:
    found = set(symbols)
    return dict.fromkeys(found, share / max(1, len(found)))


def recall_oracle(source: Recall, document: list[int]) -> Iterator[dict[int, float]]:
    """The probabilities of the tokens at each place, told from those before it alone."""
    keys, values = set(range(source.keys)), set(range(source.keys, source.keys + source.values))
    table: dict[int, int] = {}
    for place, token in enumerate(document):
        query = place - 2 * source.pairs - source.distance
        if query >= 0:
            yield {table[document[place - 1]]: 1.0} if query % 2 else evenly(table)
        elif place >= 2 * source.pairs:
            yield {source.keys + source.values: 1.0}
        elif place % 2:
            yield evenly(values)
            table[document[place - 1]] = token
        else:
            yield evenly(keys - set(table))


def composition_oracle(source: Composition, document: list[int]) -> Iterator[dict[int, float]]:
    """The probabilities of the tokens at each place, told from those before it alone."""
    symbols, n = set(range(source.symbols)), source.links
    hops = range(source.symbols, source.symbols + source.hops)
    leads: dict[int, int] = {}
    for place, token in enumerate(document):
        known = set(document[:place])
        if (query := place - 2 * n) >= 0:
            answer = walk(leads, document[place - 1], document[place - 2] - source.symbols + 1) if query % 3 == 2 else 0
            yield (evenly(hops), evenly(leads), {answer: 1.0})[query % 3]
            continue
        if place % 2 == 0:
            free, left = known - set(leads), n - len(leads)
        else:
            start = document[place - 1]
            while start in leads.values():
                start = next(symbol for symbol, image in leads.items() if image == start)
            last = len(leads) == n - 1
            free, left = (known - set(leads.values()) - (set() if last else {start})), 1 if last else n - len(leads) - 1
        yield evenly(free, len(free) / left) | evenly(symbols - known, (left - len(free)) / left)
        if place % 2:
            leads[document[place - 1]] = token


@pytest.mark.parametrize(
    ("source", "oracle"),
    [
        ({"kind": "recall", "keys": 9, "values": 7, "pairs": 5, "queries": 3, "distance": 4}, recall_oracle),
        ({"kind": "composition", "symbols": 12, "links": 7, "hops": 3, "queries": 6}, composition_oracle),
    ],
    ids=["recall", "composition"],
)
def test_a_predictor_that_knows_the_task_reaches_the_floor_of_the_prepared_corpus(declare, tmp_path, source, oracle):
    corpus = declare(source=source | {"documents": 1500}, tokenizer={"kind": "identity"})
    prepared = prepare(corpus, vocabulary=32, folder=tmp_path, base=tmp_path)
    split = open_split(prepared.folder, split="validation")
    tokens = np.concatenate(split.shards)
    ends = np.flatnonzero(tokens == prepared.manifest.end_of_text)
    nats = 0.0
    for document in (part[part != prepared.manifest.end_of_text].tolist() for part in np.split(tokens, ends + 1)[:-1]):
        for token, possible in zip(document, oracle(corpus.source, document), strict=True):
            assert sum(possible.values()) == pytest.approx(1.0)
            nats -= math.log(possible[token])
    floors = prepared.manifest.floors
    assert nats / len(tokens) == pytest.approx(floors.entropy_rate, rel=1e-9)
    assert floors.entropy_rate is not None
    assert floors.entropy_rate < floors.bigram < floors.unigram < math.log(32)


def test_the_counting_floors_of_recall_are_those_that_its_layout_gives(declare, tmp_path):
    keys, values, pairs, distance = 6, 5, 4, 3
    source = {"kind": "recall", "keys": keys, "values": values, "pairs": pairs, "queries": pairs, "distance": distance}
    corpus = declare(source=source | {"documents": 20_000}, tokenizer={"kind": "identity"}, evaluation={"tokens": 65_536})
    floors = prepare(corpus, vocabulary=32, folder=tmp_path, base=tmp_path).manifest.floors
    length = 4 * pairs + distance + 1
    often = [2 * pairs / keys] * keys + [2 * pairs / values] * values + [distance, 1]
    unigram = -sum(times / length * math.log(times / length) for times in often)
    after_value = [(2 * pairs - 2) / keys] * keys + [1, 1]
    after_blank = [1 / keys] * keys + [distance - 1]

    def nats(following: list[float]) -> float:
        return -sum(times * math.log(times / sum(following)) for times in following)

    bigram = (2 * pairs * math.log(values) + nats(after_value) + nats(after_blank) + math.log(keys)) / length
    assert floors.unigram == pytest.approx(unigram, abs=0.01)
    assert floors.bigram == pytest.approx(bigram, abs=0.01)


def plain_recall(source: Recall, place: int) -> list[int]:
    """A document of the first group, from the raw integers of its stream alone, in Python's own arithmetic."""
    raw = np.random.Philox(np.random.SeedSequence([source.seed, 1, 0])).random_raw
    count, keys, pairs = source.documents, source.keys, source.pairs
    for_keys = raw(count * keys).tolist()[place * keys :][:keys]
    for_values = raw(count * pairs).tolist()[place * pairs :][:pairs]
    for_queries = raw(count * source.queries).tolist()[place * source.queries :][: source.queries]
    chosen = sorted(range(keys), key=for_keys.__getitem__)[:pairs]
    bound = [keys + number % source.values for number in for_values]
    asked = [number % pairs for number in for_queries]
    listed = [symbol for pair in zip(chosen, bound, strict=True) for symbol in pair]
    answers = [symbol for pair in asked for symbol in (chosen[pair], bound[pair])]
    return listed + [source.alphabet - 1] * source.distance + answers


def test_documents_are_plain_integer_arithmetic_on_a_fixed_stream():
    source = Recall(keys=5, values=4, pairs=3, queries=2, distance=1, seed=7, documents=20)
    assert [list(document) for document in drawn(source)] == [plain_recall(source, place) for place in range(20)]


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ({"kind": "recall", "keys": 20, "values": 12}, "the 33 symbols and end-of-text are 34"),
        ({"kind": "composition", "symbols": 30, "links": 4, "hops": 2}, "the 32 symbols and end-of-text are 33"),
    ],
)
def test_symbols_that_do_not_fit_the_vocabulary_are_refused_before_anything_is_drawn(declare, tmp_path, source, rule):
    corpus = declare(source=source | {"documents": 10_000_000}, tokenizer={"kind": "identity"})
    with pytest.raises(CorpusError, match=f"corpus small: a vocabulary of 32 is too small: {rule}"):
        prepare(corpus, vocabulary=32, folder=tmp_path, base=tmp_path)
