from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from hashlib import blake2b
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knockout.corpus.batches import batch, evaluation_batches, evaluation_bytes, evaluation_tokens
from knockout.corpus.encoding.encoders import open_encoder
from knockout.corpus.order import grid, permute, window_starts
from knockout.corpus.prepare import prepare
from knockout.corpus.reading import Split, open_split
from knockout.errors import CorpusError


def numbered(small, *, num_tokens: int, shard: int) -> Split:
    """A split whose tokens are their own positions, cut into shards."""
    shards = tuple(
        np.arange(first, min(first + shard, num_tokens), dtype=np.uint32) for first in range(0, num_tokens, shard)
    )
    return Split(small.manifest, "train", shards, tuple(accumulate(map(len, shards), initial=0)))


@pytest.mark.parametrize("shard", [7, 100, 1000])
def test_rows_are_the_same_wherever_shards_end(small, shard):
    split = numbered(small, num_tokens=1000, shard=shard)
    starts = np.array([0, 3, 95, 500, 971])
    np.testing.assert_array_equal(split.gather(starts, length=29), starts[:, None] + np.arange(29))
    assert split.gather(starts, length=29).dtype == np.int64


@pytest.mark.parametrize("start", [-1, 990])
def test_rows_outside_the_split_are_refused(small, start):
    with pytest.raises(CorpusError, match="the train split has 1,000 tokens"):
        numbered(small, num_tokens=1000, shard=100).gather(np.array([start]), length=11)


@given(st.integers(1, 3000), st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6))
def test_the_order_is_a_permutation_of_any_size(size, keys):
    visited = permute(np.arange(size, dtype=np.uint64), size=size, keys=keys)
    assert sorted(visited.tolist()) == list(range(size))


@settings(max_examples=40)
@given(
    num_tokens=st.integers(40, 5000),
    context=st.integers(1, 39),
    size=st.integers(1, 17),
    seed=st.integers(-(2**70), 2**70),
)
def test_every_window_is_visited_once_in_each_epoch(num_tokens, context, size, seed):
    windows = grid(num_tokens, context=context)
    steps = -(-3 * windows.num_windows // size)
    starts = np.concatenate([window_starts(windows, seed=seed, first=step * size, count=size) for step in range(steps)])
    for epoch in range(3):
        visits = np.sort(starts[epoch * windows.num_windows :][: windows.num_windows])
        np.testing.assert_array_equal(np.diff(visits), context)
        assert 0 <= visits[0] < context + (num_tokens < 2 * context) * num_tokens
        assert visits[-1] + context + 1 <= num_tokens
    assert windows.num_windows >= num_tokens // context - 1


def test_the_order_equals_plain_integer_arithmetic():
    windows = grid(100_003, context=16)
    size = windows.num_windows

    def visit(seed: int, epoch: int, place: int) -> int:
        digest = blake2b(f"knockout order {seed} {epoch}".encode(), digest_size=56).digest()
        offset, *keys = (int.from_bytes(digest[at : at + 8], "little") for at in range(0, 56, 8))
        columns = next(side for side in range(1, size) if side * side >= size)
        rows = -(-size // columns)
        while True:
            row, column = divmod(place, columns)
            for index, key in enumerate(keys):
                mixed = ((column if index % 2 else row) + key) % 2**64
                mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
                mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) % 2**64
                mixed ^= mixed >> 31
                row, column = ((row + mixed) % rows, column) if index % 2 else (row, (column + mixed) % columns)
            place = row * columns + column
            if place < size:
                return place * 16 + offset % 16

    first = 2 * size - 40
    expected = [visit(5, *divmod(place, size)) for place in range(first, first + 80)]
    assert window_starts(windows, seed=5, first=first, count=80).tolist() == expected


def test_each_place_is_equally_likely_to_come_first():
    windows = grid(11 * 8, context=8)
    assert windows.num_windows == 10
    firsts = [int(window_starts(windows, seed=seed, first=0, count=1)[0]) // 8 for seed in range(4000)]
    counts = np.bincount(firsts, minlength=10)
    chi_squared = ((counts - 400) ** 2 / 400).sum()
    assert chi_squared < 33.7  # 0.9999 quantile of chi-squared with 9 degrees of freedom


def test_a_batch_depends_on_its_arguments_alone(small):
    split, again = (open_split(small.folder, split="train") for _ in range(2))
    steps = {step: batch(split, seed=3, step=step, batch=8, context=128) for step in range(40)}
    for step in (39, 0, 17):
        np.testing.assert_array_equal(batch(again, seed=3, step=step, batch=8, context=128), steps[step])
    assert (steps[0] != batch(split, seed=4, step=0, batch=8, context=128)).any()
    assert steps[0].shape == (8, 129)


def test_batches_of_another_size_visit_the_same_windows(small):
    split = open_split(small.folder, split="train")
    by_eight = [batch(split, seed=0, step=step, batch=8, context=64) for step in range(6)]
    by_twelve = [batch(split, seed=0, step=step, batch=12, context=64) for step in range(4)]
    np.testing.assert_array_equal(np.concatenate(by_eight), np.concatenate(by_twelve))


def test_changing_a_batch_changes_no_other(small):
    split = open_split(small.folder, split="train")
    first = batch(split, seed=0, step=0, batch=4, context=32)
    kept = first.copy()
    first[:] = -1
    np.testing.assert_array_equal(batch(split, seed=0, step=0, batch=4, context=32), kept)


def test_a_split_shorter_than_a_window_is_refused(small):
    split = numbered(small, num_tokens=64, shard=64)
    with pytest.raises(CorpusError, match="the split has 64 tokens, a window of 64 and one more does not fit"):
        batch(split, seed=0, step=0, batch=1, context=64)
    assert batch(split, seed=0, step=9, batch=2, context=63).tolist() == [list(range(64))] * 2


@pytest.mark.parametrize("context", [1, 48, 128, 512])
def test_the_exam_is_the_same_for_every_batch_size_and_covers_each_target_once(small, context):
    split = open_split(small.folder, split="validation")
    expected = [target for start in small.manifest.evaluation.starts for target in range(start + 1, start + 513)]
    positions = replace(split, shards=(np.arange(split.num_tokens, dtype=np.uint32),))
    for size in (1, 5, 64):
        batches = list(evaluation_batches(positions, context=context, batch=size))
        targets = np.concatenate([rows[:, 1:].ravel() for rows in batches])
        assert sorted(targets.tolist()) == expected
        assert all(len(rows) <= size and rows.shape[1] <= context + 1 for rows in batches)
        assert all((np.diff(rows, axis=1) == 1).all() for rows in batches)
    assert len(expected) == evaluation_tokens(small.manifest) == 4096


def test_the_exams_bytes_are_those_of_the_text_that_its_targets_spell(declare, tmp_path):
    texts = [f"{number} é 日本語 🙂\n" * 5 for number in range(100)]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
    source = {"kind": "files", "paths": ["*.txt"]}
    trial = prepare(
        declare(source=source, evaluation={"tokens": 8, "segments": 1}),
        vocabulary=300,
        folder=tmp_path / "corpora",
        base=tmp_path,
    )
    whole = {"tokens": trial.manifest.splits.validation.tokens - 1, "segments": 1}
    prepared = prepare(declare(source=source, evaluation=whole), vocabulary=300, folder=tmp_path / "corpora", base=tmp_path)
    first = open_split(prepared.folder, split="validation").gather(np.array([0]), length=1)[0]
    unasked = open_encoder(prepared.folder, manifest=prepared.manifest).decode(first)
    assert unasked.decode().isdigit()
    assert evaluation_bytes(prepared.manifest) == prepared.manifest.splits.validation.raw_bytes - len(unasked)


def test_the_exam_refuses_the_training_split_and_windows_longer_than_its_segments(small):
    with pytest.raises(CorpusError, match="the exam is on the validation split, not on train"):
        next(evaluation_batches(open_split(small.folder, split="train"), context=8, batch=1))
    with pytest.raises(CorpusError, match="1,024 tokens does not fit the exam's segments of 512"):
        next(evaluation_batches(open_split(small.folder, split="validation"), context=1024, batch=1))


def test_there_are_two_splits(small):
    with pytest.raises(CorpusError, match="no split 'test' in a corpus: there are train, validation"):
        open_split(small.folder, split="test")


def test_reading_needs_neither_polars_nor_tokenizers_nor_torch():
    program = (
        "import sys, knockout.corpus.reading, knockout.corpus.batches\n"
        "print(sorted({'polars', 'tokenizers', 'torch', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
