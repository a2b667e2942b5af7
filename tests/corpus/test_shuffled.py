from __future__ import annotations

from collections import Counter
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knockout.corpus.batches import batch
from knockout.corpus.floors import counting_floors
from knockout.corpus.reading import Split, open_split
from knockout.corpus.shuffled import ShuffledSplit, shuffled, shuffled_places
from knockout.errors import CorpusError


def cut(split: Split, *, shard: int) -> Split:
    """The same tokens in shards of another size."""
    tokens = np.concatenate(split.shards)
    shards = tuple(tokens[first : first + shard] for first in range(0, len(tokens), shard))
    return Split(split.manifest, split.name, shards, tuple(accumulate(map(len, shards), initial=0)))


def whole(split: Split) -> np.ndarray:
    return split.gather(np.array([0]), length=split.num_tokens)[0]


@settings(deadline=None)
@given(st.integers(1, 3000))
def test_every_place_of_the_text_is_visited_once(size):
    assert sorted(shuffled_places(np.arange(size), size=size).tolist()) == list(range(size))


def test_each_token_stands_in_the_shuffled_split_as_often_as_in_the_split(small):
    split = open_split(small.folder, split="train")
    mixed = whole(shuffled(split))
    assert Counter(mixed.tolist()) == Counter(whole(split).tolist())
    assert (mixed != whole(split)).mean() > 0.9


def test_the_shuffled_split_is_always_the_same_wherever_shards_end(small):
    split = open_split(small.folder, split="validation")
    expected = whole(shuffled(split))
    for shard in (101, 5000):
        np.testing.assert_array_equal(whole(shuffled(cut(split, shard=shard))), expected)
    starts = np.array([0, 7, 4000])
    rows = shuffled(cut(split, shard=101)).gather(starts, length=33)
    np.testing.assert_array_equal(rows, expected[starts[:, None] + np.arange(33)])


def test_neighbours_in_the_shuffled_split_say_nothing_of_each_other(small):
    mixed = whole(shuffled(open_split(small.folder, split="train")))
    half = len(mixed) // 2
    floors = counting_floors([mixed[:half].astype(np.uint16)], exam_SL=mixed[None, half:], vocabulary=512)
    plain = small.manifest.floors
    assert plain.bigram < plain.unigram - 0.5
    assert floors.bigram > floors.unigram - 0.01


def test_no_window_of_training_is_a_stretch_of_the_text(small):
    split = open_split(small.folder, split="train")
    pairs = set(pairwise(whole(split).tolist()))
    rows = batch(shuffled(split), seed=0, step=0, batch=8, context=64)
    assert rows.shape == (8, 65)
    assert np.mean([pair in pairs for row in rows.tolist() for pair in pairwise(row)]) < 0.8


@pytest.mark.parametrize("start", [-1, 970])
def test_rows_outside_the_shuffled_split_are_refused(small, start):
    tokens = np.arange(1000, dtype=np.uint32)
    split = ShuffledSplit(small.manifest, "train", (tokens,), (0, 1000))
    with pytest.raises(CorpusError, match="the train split has 1,000 tokens"):
        split.gather(np.array([start]), length=31)
