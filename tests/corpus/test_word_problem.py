from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import combinations, product

import numpy as np
import pytest

from knockout.corpus.generators.generated import entropy_rate, generate
from knockout.corpus.prepare import prepare
from knockout.corpus.reading import open_split
from knockout.declare.generators import WordProblem
from knockout.errors import CorpusError

Document = tuple[int, ...]


def matrix(swap: tuple[int, int], *, points: int) -> np.ndarray:
    """The permutation matrix of a swap: row x has its 1 where x goes."""
    found = np.eye(points, dtype=int)
    found[list(swap)] = found[list(reversed(swap))]
    return found


def told(source: WordProblem, letters: tuple[int, ...]) -> Document:
    """A word and its product, by multiplying matrices."""
    swaps = list(combinations(range(source.points), 2))
    composed = np.eye(source.points, dtype=int)
    for letter in letters:
        composed = composed @ matrix(swaps[letter], points=source.points)
    images = composed @ np.arange(source.points)
    pairs = [len(swaps) + symbol for point, image in enumerate(images.tolist()) for symbol in (point, image)]
    return (*letters, len(swaps) + source.points, *pairs)


def every(source: WordProblem) -> dict[Document, float]:
    """All documents there are and how likely each is, written down from what the task is."""
    words: dict[Document, float] = {}
    for length in range(1, source.length + 1):
        for letters in product(range(source.swaps), repeat=length):
            words[told(source, letters)] = 1 / source.length / source.swaps**length
    chosen = product(words.items(), repeat=source.words)
    return {sum((word for word, _ in parts), ()): math.prod(share for _, share in parts) for parts in chosen}


def drawn(source: WordProblem) -> list[Document]:
    return [tuple(document.tolist()) for document in generate(source)]


@pytest.mark.parametrize(
    "source",
    [WordProblem(points=3, length=2, words=2, documents=40_000), WordProblem(points=4, length=3, words=1, documents=40_000)],
    ids=["two words", "a longer word"],
)
def test_each_length_and_each_letter_is_drawn_equally_often_and_the_floor_is_the_entropy_of_both(source):
    likely = every(source)
    counts = Counter(drawn(source))
    assert set(counts) == set(likely)
    expected = {document: share * source.documents for document, share in likely.items()}
    chi_squared = sum((counts[document] - times) ** 2 / times for document, times in expected.items())
    freedom = len(likely) - 1
    assert abs(chi_squared - freedom) < 4 * math.sqrt(2 * freedom)
    nats = -math.fsum(share * math.log(share) for share in likely.values())
    length = math.fsum(share * len(document) for document, share in likely.items())
    assert entropy_rate(source) == pytest.approx(nats / (length + 1), rel=1e-12)


def test_the_document_that_the_docstring_draws():
    source = WordProblem(points=4, length=3, words=2)
    one, two, three, four = range(6, 10)
    first = (0, 3, 10, one, three, two, one, three, two, four, four)
    assert told(source, (0, 3)) == first
    assert told(source, (5,)) == (5, 10, one, one, two, two, three, four, four, three)
    assert first + told(source, (5,)) in set(drawn(source.model_copy(update={"documents": 20_000})))


def test_the_order_of_swaps_matters():
    source = WordProblem(points=3, length=2, words=1)
    assert told(source, (0, 1))[2:] != told(source, (1, 0))[2:]


def test_the_last_two_images_follow_from_the_others_and_the_parity_of_the_word_and_no_more_do():
    source = WordProblem(points=5, length=4, words=1, documents=20_000)
    images: dict[tuple[Document, int], set[Document]] = {}
    for document in drawn(source):
        letters, places = document[: document.index(15)], document[document.index(15) + 2 :: 2]
        for known in (2, 3):
            images.setdefault((places[:known], len(letters) % 2), set()).add(places)
    assert {len(found) for (known, _), found in images.items() if len(known) == 3} == {1}
    assert max(len(found) for (known, _), found in images.items() if len(known) == 2) == 3


def oracle(source: WordProblem, document: list[int]) -> Iterator[float]:
    """The probability of the token at each place, told from those before it alone: positions swapped in a list."""
    swaps = list(combinations(range(source.points), 2))
    letters: list[int] = []
    asked, held = 0, list(range(source.points))
    for token in document:
        if token < source.swaps:
            left = source.length - len(letters)
            yield (left / (left + 1) if letters else 1.0) / len(swaps)
            letters.append(token)
        elif token == source.alphabet - 1:
            yield 1 / (source.length + 1 - len(letters))
            held = list(range(source.points))
            for first, second in (swaps[letter] for letter in letters):
                held[first], held[second] = held[second], held[first]
        else:
            point, wanted = divmod(asked, 2)
            yield float(token - source.swaps == (held.index(point) if wanted else point))
            asked = (asked + 1) % (2 * source.points)
            letters = letters if asked else []


def test_a_predictor_that_knows_the_task_reaches_the_floor_of_the_prepared_corpus(declare, tmp_path):
    source = {"kind": "word_problem", "points": 4, "length": 6, "words": 8, "documents": 8000}
    corpus = declare(source=source, tokenizer={"kind": "identity"})
    prepared = prepare(corpus, vocabulary=32, folder=tmp_path, base=tmp_path)
    tokens = np.concatenate(open_split(prepared.folder, split="validation").shards)
    ends = np.flatnonzero(tokens == prepared.manifest.end_of_text)
    documents = [part[part != prepared.manifest.end_of_text].tolist() for part in np.split(tokens, ends + 1)[:-1]]
    nats = np.array([-sum(map(math.log, oracle(corpus.source, document))) for document in documents])
    lengths = np.array([len(document) + 1 for document in documents])
    floors = prepared.manifest.floors
    assert floors.entropy_rate is not None
    surplus = nats - floors.entropy_rate * lengths
    assert abs(surplus.mean()) < 4 * surplus.std() / math.sqrt(len(documents))
    assert surplus.std() / math.sqrt(len(documents)) / lengths.mean() < 0.002
    assert floors.entropy_rate < floors.bigram < floors.unigram < math.log(32)
    assert prepared.manifest.counts.duplicates == 0


def entropy(counts: list[float]) -> float:
    """Nats of a distribution times its total."""
    return -sum(count * math.log(count / sum(counts)) for count in counts if count)


def test_the_counting_floors_are_those_that_its_layout_gives(declare, tmp_path):
    points, longest, words = 4, 3, 5
    source = {"kind": "word_problem", "points": points, "length": longest, "words": words, "documents": 20_000}
    corpus = declare(source=source, tokenizer={"kind": "identity"}, evaluation={"tokens": 65_536})
    floors = prepare(corpus, vocabulary=32, folder=tmp_path, base=tmp_path).manifest.floors
    swaps, letters = math.comb(points, 2), (longest + 1) / 2
    length = letters + 1 + 2 * points + 1 / words
    unigram = entropy([letters / swaps] * swaps + [2.0] * points + [1.0, 1 / words]) / length
    contracts = 1 - 2 / (points - 1)
    stays = 1 / points + (1 - 1 / points) * sum(contracts**k for k in range(1, longest + 1)) / longest
    goes = (1 - stays) / (points - 1)
    bigram = entropy([(letters - 1) / swaps] * swaps + [1.0]) + math.log(swaps) / words
    for point in range(points):
        leads = [stays if image == point else goes for image in range(points)]
        after_image = [leads[image - 1] if image else 0.0 for image in range(points)]
        after_last = [leads[-1] * (1 - 1 / words) / swaps] * swaps + [leads[-1] / words]
        bigram += entropy([lead + after for lead, after in zip(leads, after_image, strict=True)] + after_last)
    assert floors.unigram == pytest.approx(unigram, abs=0.01)
    assert floors.bigram == pytest.approx(bigram / length, abs=0.01)


def test_documents_are_plain_integer_arithmetic_on_a_fixed_stream():
    source = WordProblem(points=4, length=3, words=2, seed=7, documents=20)
    raw = np.random.Philox(np.random.SeedSequence([source.seed, 1, 0])).random_raw
    lengths = [1 + number % 3 for number in raw(20 * 2).tolist()]
    letters = [number % 6 for number in raw(20 * 2 * 3).tolist()]
    words = [told(source, tuple(letters[3 * place : 3 * place + length])) for place, length in enumerate(lengths)]
    assert drawn(source) == [words[place] + words[place + 1] for place in range(0, 40, 2)]


def test_symbols_that_do_not_fit_the_vocabulary_are_refused_before_anything_is_drawn(declare, tmp_path):
    source = {"kind": "word_problem", "points": 9, "documents": 10_000_000}
    corpus = declare(source=source, tokenizer={"kind": "identity"})
    with pytest.raises(CorpusError, match="a vocabulary of 32 is too small: the 46 symbols and end-of-text are 47"):
        prepare(corpus, vocabulary=32, folder=tmp_path, base=tmp_path)
