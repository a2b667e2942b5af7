from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from knockout.corpus.generators.generated import entropy_rate, generate
from knockout.corpus.prepare import prepare
from knockout.corpus.reading import open_split
from knockout.declare.generators import Dyck
from knockout.declare.grammar import Grammar

Document = tuple[int, ...]


def drawn(source: Dyck) -> list[Document]:
    return [tuple(document.tolist()) for document in generate(source)]


def oracle(source: Dyck, document: Document) -> Iterator[float]:
    """The probability of the token at each place and of end-of-text, told by a stack from the tokens before it alone."""
    open_brackets: list[int] = []
    k, begun = source.brackets, False
    for token in (*document, -1):
        if token == -1:
            yield 1 / source.groups if begun and not open_brackets else 0.0
        elif token < k:
            if not open_brackets:
                chance = 1 - 1 / source.groups if begun else 1.0
            else:
                chance = 0.0 if len(open_brackets) == source.depth else source.opens
            yield chance / k
            open_brackets.append(token)
        else:
            matches = bool(open_brackets) and open_brackets.pop() == token - k
            yield float(matches) * (1.0 if len(open_brackets) + 1 == source.depth else 1 - source.opens)
        begun = True


@pytest.mark.parametrize(
    "source",
    [
        Dyck(brackets=2, depth=2, opens=0.6, groups=1.5, documents=60_000),
        Dyck(brackets=1, depth=None, opens=0.3, groups=2.0, documents=60_000),
        Dyck(brackets=3, depth=1, groups=2.0, documents=60_000),
    ],
    ids=["bounded", "unbounded", "flat"],
)
def test_documents_are_drawn_as_often_as_the_chances_of_their_brackets_say(source):
    counts = Counter(drawn(source))
    chances = {document: math.prod(oracle(source, document)) for document in counts}
    assert min(chances.values()) > 0
    often = {document: chance * source.documents for document, chance in chances.items() if chance * source.documents > 20}
    rest = source.documents - sum(often.values())
    chi_squared = sum((counts[document] - times) ** 2 / times for document, times in often.items())
    chi_squared += (source.documents - sum(counts[document] for document in often) - rest) ** 2 / rest
    assert len(often) > 5
    assert abs(chi_squared - len(often)) < 5 * math.sqrt(2 * len(often))


def by_absorbing_chain(source: Dyck, *, levels: int) -> tuple[float, float]:
    """Nats and symbols of a document: depths as a chain that ends, whose states are passed (I - Q)^-1 times.

    Kemeny and Snell, "Finite Markov chains" (1960), theorem 3.2.4. State 0 is the beginning; state 1 + d is depth d.
    """
    ends, p = 1 / source.groups, source.opens
    rows: list[dict[int, float]] = [{2: 1.0}, {2: 1 - ends}]
    rows += [{d + 2: p, d: 1 - p} if d < levels else {d: 1.0} for d in range(1, levels + 1)]
    chances = np.zeros((len(rows), len(rows)))
    for state, row in enumerate(rows):
        for to, chance in row.items():
            chances[state, to] = chance
    passed = np.linalg.inv(np.eye(len(rows)) - chances)[0]
    left = 1 - chances.sum(1)
    nats = [-sum(c * math.log(c) for c in (*row.values(), left[state]) if c > 1e-15) for state, row in enumerate(rows)]
    opening = sum(passed[state] * chance for state, row in enumerate(rows) for to, chance in row.items() if to > state)
    return passed @ nats + opening * math.log(source.brackets), 2 * opening


@pytest.mark.parametrize(
    ("source", "levels"),
    [
        (Dyck(brackets=8, depth=4, opens=0.5, groups=16.0), 4),
        (Dyck(brackets=3, depth=6, opens=0.7, groups=1.0), 6),
        (Dyck(brackets=1, depth=2, opens=0.2, groups=3.5), 2),
        (Dyck(brackets=5, depth=1, groups=2.0), 1),
        (Dyck(brackets=4, depth=None, opens=0.45, groups=2.0), 400),
    ],
    ids=["even", "deep", "one kind", "flat", "unbounded"],
)
def test_the_floor_is_that_of_an_absorbing_chain_of_depths(source, levels):
    nats, symbols = by_absorbing_chain(source, levels=levels)
    assert entropy_rate(source) == pytest.approx(nats / (symbols + 1), rel=1e-9)


def as_grammar(source: Dyck) -> Grammar:
    """The same language with the same chances, written as rules."""
    ends, k = 1 / source.groups, source.brackets
    kinds = {kind: (f"open{kind}", f"close{kind}") for kind in range(k)}
    rules: dict[str, dict[str, float]] = {"text": {"pair1": ends, "pair1 text": 1 - ends}}
    for level in range(1, (source.depth or 1) + 1):
        deepest = level == source.depth
        inner = level if source.depth is None else level + 1
        rules[f"pair{level}"] = {f"{opens} inside{level} {closes}": 1 / k for opens, closes in kinds.values()}
        goes_on = {"": 1 - source.opens, f"pair{inner} inside{level}": source.opens}
        rules[f"inside{level}"] = {"": 1.0} if deepest else goes_on
    words: dict[str, int | dict[str, float]] = {name: 1 for names in kinds.values() for name in names}
    return Grammar(start="text", rules=rules, words=words)


@pytest.mark.parametrize("depth", [None, 1, 3])
def test_a_grammar_of_the_same_language_has_the_same_floor(depth):
    source = Dyck(brackets=3, depth=depth, opens=0.4, groups=2.5)
    assert entropy_rate(source) == pytest.approx(entropy_rate(as_grammar(source)), rel=1e-9)


def test_the_document_that_the_docstring_draws_costs_what_it_says():
    k, p, g = 2, 0.4, 4.0
    source = Dyck(brackets=k, depth=2, opens=p, groups=g)
    found = list(oracle(source, (0, 1, 3, 0, 2, 2, 1, 3)))
    assert found == pytest.approx([1 / k, p / k, 1, p / k, 1, 1 - p, (1 - 1 / g) / k, 1 - p, 1 / g])


@pytest.mark.parametrize("depth", [4, None])
def test_a_predictor_with_a_stack_reaches_the_floor_of_the_prepared_corpus(declare, tmp_path, depth):
    source = {"kind": "dyck", "brackets": 4, "depth": depth, "opens": 0.45, "groups": 8.0, "documents": 8000}
    corpus = declare(source=source, tokenizer={"kind": "identity"})
    prepared = prepare(corpus, vocabulary=32, folder=tmp_path, base=tmp_path)
    tokens = np.concatenate(open_split(prepared.folder, split="validation").shards)
    ends = np.flatnonzero(tokens == prepared.manifest.end_of_text)
    documents = [part[part != prepared.manifest.end_of_text].tolist() for part in np.split(tokens, ends + 1)[:-1]]
    nats = np.array([-sum(map(math.log, oracle(corpus.source, tuple(document)))) for document in documents])
    lengths = np.array([len(document) + 1 for document in documents])
    floors = prepared.manifest.floors
    assert floors.entropy_rate is not None
    surplus = nats - floors.entropy_rate * lengths
    error = surplus.std() / math.sqrt(len(documents))
    assert abs(surplus.mean()) < 4 * error
    assert error / lengths.mean() < 0.01
    assert floors.entropy_rate < floors.bigram < floors.unigram < math.log(32)


def depths(document: Document, *, kinds: int) -> list[int]:
    return np.cumsum([1 if token < kinds else -1 for token in document]).tolist()


def test_brackets_nest_to_the_declared_depth_and_no_further():
    documents = drawn(Dyck(brackets=2, depth=3, opens=0.6, groups=5.0, documents=300))
    assert max(max(depths(document, kinds=2)) for document in documents) == 3
    assert all(depths(document, kinds=2)[-1] == 0 for document in documents)
    deep = drawn(Dyck(brackets=2, depth=None, opens=0.48, documents=300))
    assert max(max(depths(document, kinds=2)) for document in deep) > 10
