from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from knockout.corpus import floors
from knockout.corpus.floors import counting_floors
from knockout.corpus.reading import open_split


def direct(train: list[int], exam: list[list[int]], vocabulary: int) -> tuple[float, float]:
    """Witten-Bell smoothed cross-entropies, written down from the formula with one probability at a time."""
    ones, pairs = Counter(train), Counter(pairwise(train))

    def unigram(word: int) -> float:
        return (ones[word] + len(ones) / vocabulary) / (len(train) + len(ones))

    def bigram(head: int, word: int) -> float:
        after = {second: times for (first, second), times in pairs.items() if first == head}
        if not after:
            return unigram(word)
        return (after.get(word, 0) + len(after) * unigram(word)) / (sum(after.values()) + len(after))

    for head in {*exam[0], vocabulary - 1}:
        assert math.isclose(sum(bigram(head, word) for word in range(vocabulary)), 1.0, rel_tol=1e-12)
    targets = [(row[at], row[at + 1]) for row in exam for at in range(len(row) - 1)]
    losses = [(-math.log(unigram(word)), -math.log(bigram(head, word))) for head, word in targets]
    return sum(one for one, _ in losses) / len(losses), sum(two for _, two in losses) / len(losses)


@pytest.mark.parametrize("dense", [2**24, 0])
def test_floors_equal_the_formula_in_tables_and_in_sorted_pairs(monkeypatch, dense):
    monkeypatch.setattr(floors, "MAX_DENSE_PAIRS", dense)
    random = np.random.default_rng(1)
    train = random.zipf(1.5, 3000).clip(max=29).astype(np.uint16)
    exam = random.zipf(1.3, (3, 40)).clip(max=31).astype(np.uint16)
    found = counting_floors(np.split(train, [1, 1000, 1001, 2500]), exam_SL=exam, vocabulary=32)
    unigram, bigram = direct(train.tolist(), exam.tolist(), 32)
    assert found.unigram == pytest.approx(unigram, rel=1e-12)
    assert found.bigram == pytest.approx(bigram, rel=1e-12)


def test_a_vocabulary_as_large_as_gpt2s_is_counted_without_a_table():
    train = np.array([50_256, 0, 50_255] * 4, np.uint16)
    found = counting_floors([train], exam_SL=np.array([[50_256, 0]], np.uint16), vocabulary=50_257)
    lower = (4 + 3 / 50_257) / (12 + 3)
    assert found.unigram == pytest.approx(-math.log(lower))
    assert found.bigram == pytest.approx(-math.log((4 + lower) / (4 + 1)))


def test_one_training_token_leaves_the_bigram_at_the_unigram():
    found = counting_floors([np.array([1], np.uint16)], exam_SL=np.array([[0, 2]], np.uint16), vocabulary=4)
    assert found.unigram == found.bigram == pytest.approx(-math.log(0.25 / 2))


def test_a_prepared_corpus_holds_the_floors_of_its_own_tokens(small):
    train, validation = (open_split(small.folder, split=split) for split in ("train", "validation"))
    exam = validation.gather(np.array(small.manifest.evaluation.starts), length=513)
    found = counting_floors(train.shards, exam_SL=exam, vocabulary=512)
    assert (found.unigram, found.bigram) == (small.manifest.floors.unigram, small.manifest.floors.bigram)
    assert found.bigram < found.unigram < math.log(512)
    assert small.manifest.floors.entropy_rate is None
