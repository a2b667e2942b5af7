from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import pytest

from knockout.corpus.generators.generated import entropy_rate, generate
from knockout.corpus.generators.grammar import labels
from knockout.corpus.prepare import prepare
from knockout.corpus.reading import open_split
from knockout.declare.grammar import Grammar
from knockout.declare.load import load_corpus
from knockout.errors import CorpusError

Symbols = tuple[str, ...]
SHARED = {
    "start": "clause",
    "rules": {
        "clause": {"one act": 0.7, "one act and clause": 0.3}, "one": {"name": 0.4, "the noun": 0.6}, "act": {"verb": 1.0},
    },
    "words": {
        "name": 2, "noun": {"fish": 0.5, "cat": 0.5}, "verb": {"fish": 0.25, "run": 0.75}, "the": {"the": 1.0},
        "and": {"and": 1.0},
    },
}  # fmt: skip
"""`fish` is a noun after `the`, and else a verb."""
FINITE = {
    "start": "s",
    "rules": {"s": {"a t": 0.25, "t b": 0.75}, "t": {"": 0.5, "c": 0.125, "a a t2": 0.375}, "t2": {"b": 1.0}},
    "words": {"a": {"x": 0.75, "y": 0.25}, "b": 2, "c": {"z": 1.0}},
}
LEFT = {
    "start": "sum",
    "rules": {"sum": {"term": 0.6, "sum plus term": 0.4}, "term": {"digit": 0.8, "opens sum closes": 0.2}},
    "words": {"plus": {"+": 1.0}, "opens": {"(": 1.0}, "closes": {")": 1.0}, "digit": 2},
}


def grammar(plain: dict[str, object], **settings: object) -> Grammar:
    return Grammar.model_validate_json(json.dumps(plain | settings))


def choices(source: Grammar, symbol: str) -> dict[Symbols, float] | None:
    """What may stand for a symbol, straight from the declaration; None for a word, which is written with a quote."""
    if symbol in source.rules:
        return {tuple(text.split()): chance for text, chance in source.rules[symbol].items()}
    if symbol in source.words:
        words = source.words[symbol]
        if isinstance(words, int):
            return {(f"'{symbol}#{number}",): 1 / words for number in range(words)}
        return {(f"'{word}",): chance for word, chance in words.items()}
    return None


def drawn(source: Grammar) -> list[Symbols]:
    return [tuple(f"'{source.lexicon[symbol]}" for symbol in document) for document in generate(source)]


def derived(source: Grammar, *, least: float) -> dict[Symbols, list[float]]:
    """Texts and the chance of each of their derivations, by writing out leftmost derivations as likely as `least`."""
    found: dict[Symbols, list[float]] = defaultdict(list)
    waiting: list[tuple[Symbols, Symbols, float]] = [((), (source.start,), 1.0)]
    while waiting:
        text, left, chance = waiting.pop()
        if not left:
            found[text].append(chance)
        elif (possible := choices(source, left[0])) is None:
            waiting.append(((*text, left[0]), left[1:], chance))
        else:
            steps = (((*symbols, *left[1:]), chance * p) for symbols, p in possible.items())
            waiting += [(text, symbols, p) for symbols, p in steps if p >= least]
    return found


@pytest.mark.parametrize("plain", [FINITE, SHARED, LEFT], ids=["finite", "shared words", "left recursion"])
def test_each_text_is_drawn_as_often_as_its_one_derivation_is_likely(plain):
    source = grammar(plain, documents=20_000)
    every = derived(source, least=1e-5)
    assert {len(chances) for chances in every.values()} == {1}
    counts = Counter(drawn(source))
    often = {text: chance * source.documents for text, [chance] in every.items() if chance * source.documents > 20}
    rest = source.documents - sum(often.values())
    chi_squared = sum((counts[text] - times) ** 2 / times for text, times in often.items())
    chi_squared += (source.documents - sum(counts[text] for text in often) - rest) ** 2 / rest if rest > 1e-6 else 0.0
    assert abs(chi_squared - len(often)) < 5 * math.sqrt(2 * len(often))
    assert plain != FINITE or set(counts) <= set(every)


def test_the_floor_of_a_finite_grammar_is_the_entropy_of_its_texts():
    every = {text: sum(chances) for text, chances in derived(grammar(FINITE), least=0.0).items()}
    assert math.fsum(every.values()) == pytest.approx(1.0, rel=1e-12)
    nats = -math.fsum(chance * math.log(chance) for chance in every.values())
    length = math.fsum(chance * len(text) for text, chance in every.items())
    assert entropy_rate(grammar(FINITE)) == pytest.approx(nats / (length + 1), rel=1e-12)


def test_the_floor_of_a_grammar_without_end_is_the_entropy_of_its_texts():
    # s -> a s (1/2) | b (1/2) with two words of a: a geometric number of fair coins; Cover and Thomas (2006), exercise 2.1
    source = grammar({"start": "s", "rules": {"s": {"a s": 0.5, "b": 0.5}}, "words": {"a": 2, "b": 1}})
    assert entropy_rate(source) == pytest.approx((2 * math.log(2) + math.log(2)) / (2 + 1), rel=1e-12)


def leftmost(source: Grammar, stacks: dict[Symbols, float], *, least: float = 1e-15) -> dict[str, dict[Symbols, float]]:
    """For each word that may come next the stacks that are left after it, with their chances; "" for the end."""
    found: dict[str, dict[Symbols, float]] = defaultdict(lambda: defaultdict(float))
    waiting = list(stacks.items())
    while waiting:
        stack, chance = waiting.pop()
        if chance < least:
            continue
        if not stack:
            found[""][()] += chance
        elif (possible := choices(source, stack[0])) is None:
            found[stack[0]][stack[1:]] += chance
        else:
            waiting += [((*symbols, *stack[1:]), chance * p) for symbols, p in possible.items()]
    return found


def predicted(source: Grammar, text: Symbols) -> Iterator[float]:
    """The true model: the chance of each word and of the end, given the words before it alone.

    Quotients of prefix probabilities (Jelinek and Lafferty 1991, equation 1), each the sum over all leftmost derivations
    that begin so: what is left of every derivation ends with certainty.
    """
    stacks: dict[Symbols, float] = {(source.start,): 1.0}
    for word in (*text, ""):
        following = leftmost(source, stacks)
        total = sum(sum(left.values()) for left in following.values())
        yield sum(following[word].values()) / total
        stacks = {stack: chance / total for stack, chance in following[word].items()}


@pytest.mark.parametrize("plain", [FINITE, SHARED, LEFT], ids=["finite", "shared words", "left recursion"])
def test_the_chances_of_the_true_model_multiply_to_those_of_the_text(plain):
    source = grammar(plain)
    for text, [chance] in list(derived(source, least=1e-4).items())[:40]:
        assert math.prod(predicted(source, text)) == pytest.approx(chance, rel=1e-6)


def assert_at_the_floor(source: Grammar, texts: list[Symbols], *, within: float) -> None:
    """The true model's mean cross-entropy on texts is the floor, within sampling error."""
    nats = np.array([-sum(map(math.log, predicted(source, text))) for text in texts])
    lengths = np.array([len(text) + 1 for text in texts])
    surplus = nats - entropy_rate(source) * lengths
    error = surplus.std() / math.sqrt(len(texts))
    assert abs(surplus.mean()) < 4 * error
    assert error / lengths.mean() < within


def test_the_true_model_reaches_the_floor():
    source = grammar(SHARED, documents=600)
    assert_at_the_floor(source, drawn(source), within=0.02)


def test_the_true_model_reaches_the_floor_of_the_shipped_corpus(declare, tmp_path):
    shipped = load_corpus("grammar")[0].source.model_dump(mode="json") | {"documents": 800}
    corpus = declare(source=shipped, tokenizer={"kind": "identity"})
    prepared = prepare(corpus, vocabulary=128, folder=tmp_path, base=tmp_path)
    tokens = np.concatenate(open_split(prepared.folder, split="validation").shards)
    ends = np.flatnonzero(tokens == prepared.manifest.end_of_text)
    lexicon = corpus.source.lexicon
    texts = [tuple(f"'{lexicon[token]}" for token in part[:-1]) for part in np.split(tokens, ends + 1)[:40]]
    assert_at_the_floor(corpus.source, texts, within=0.05)
    floors = prepared.manifest.floors
    assert floors.entropy_rate == pytest.approx(entropy_rate(corpus.source))
    assert floors.entropy_rate is not None
    assert floors.entropy_rate < floors.bigram < floors.unigram < math.log(128)


def with_labels(source: Grammar, dice: random.Random) -> list[tuple[str, str]]:
    """A text with the category of each word, drawn by recursion."""
    found: list[tuple[str, str]] = []

    def derive(symbol: str) -> None:
        possible = choices(source, symbol)
        assert possible is not None
        [symbols] = dice.choices(list(possible), weights=list(possible.values()))
        for part in symbols:
            if symbol in source.words:
                found.append((part, symbol))
            else:
                derive(part)

    derive(source.start)
    return found


@pytest.mark.parametrize("plain", [FINITE, SHARED, LEFT, None], ids=["finite", "shared words", "left recursion", "shipped"])
def test_every_word_is_labelled_with_the_category_that_it_was_drawn_from(plain):
    source = load_corpus("grammar")[0].source if plain is None else grammar(plain)
    assert isinstance(source, Grammar)
    dice = random.Random(3)
    texts = [with_labels(source, dice) for _ in range(100)]
    number = {f"'{word}": place for place, word in enumerate(source.lexicon)}
    tokens = [token for text in texts for token in (*(number[word] for word, _ in text), source.alphabet)]
    expected = [label for text in texts for label in (*(source.categories.index(name) for _, name in text), -1)]
    assert labels(source, tokens_N=np.array(tokens)).tolist() == expected


def test_one_word_has_the_label_of_its_place():
    source = grammar(SHARED)
    number = {word: place for place, word in enumerate(source.lexicon)}
    text = [number[word] for word in ("the", "fish", "fish", "and", "name#1", "fish")]
    found = labels(source, tokens_N=np.array([*text, source.alphabet]))
    assert [source.categories[label] for label in found[:-1]] == ["the", "noun", "verb", "and", "name", "verb"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["the", "run"], "token 1 of the text is .*: no derivation of clause goes on so"),
        (["name#0"], "token 1 of the text is .*: no derivation"),
        ([], "token 0 of the text is .*: no derivation"),
    ],
)
def test_what_is_no_text_of_the_grammar_is_refused_by_its_place(words, message):
    source = grammar(SHARED)
    tokens = [*(source.lexicon.index(word) for word in words), source.alphabet]
    with pytest.raises(CorpusError, match=message):
        labels(source, tokens_N=np.array(tokens))
    with pytest.raises(CorpusError, match="ends within a document"):
        labels(source, tokens_N=np.array([source.lexicon.index("the")]))


def test_nothing_depends_on_the_order_in_which_a_grammar_is_written():
    def turned(plain: object) -> object:
        return {key: turned(value) for key, value in reversed(plain.items())} if isinstance(plain, dict) else plain

    one, other = grammar(SHARED, documents=200), grammar(turned(SHARED), documents=200)  # type: ignore[arg-type]
    assert list(one.rules["clause"]) != list(other.rules["clause"])
    assert drawn(one) == drawn(other)
