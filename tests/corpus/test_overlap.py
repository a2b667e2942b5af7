from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from knockout.corpus.overlap import check_disjoint
from knockout.corpus.reading import Split, open_split
from knockout.errors import CorpusError


@pytest.fixture(scope="module")
def splits(small) -> tuple[Split, Split]:
    return open_split(small.folder, split="train"), open_split(small.folder, split="validation")


def documents(split: Split) -> list[np.ndarray]:
    tokens = np.concatenate(split.shards)
    return np.split(tokens, np.flatnonzero(tokens == split.manifest.end_of_text) + 1)[:-1]


def with_documents(split: Split, parts: list[np.ndarray], *, shard_tokens: int = 10**9) -> Split:
    tokens = np.concatenate(parts)
    shards = tuple(tokens[start : start + shard_tokens] for start in range(0, len(tokens), shard_tokens))
    firsts = (0, *np.cumsum([len(shard) for shard in shards]).tolist())
    return replace(split, shards=shards, firsts=firsts)


def test_a_prepared_corpus_has_no_document_on_both_sides(splits):
    check_disjoint(*splits)


@pytest.mark.parametrize("shard_tokens", [10**9, 997, 7])
@pytest.mark.parametrize("place", [0, 3, -1])
def test_a_validation_document_in_train_is_refused_wherever_it_stands_and_shards_end(splits, place, shard_tokens):
    train, validation = splits
    parts, leaked = documents(train)[:8], documents(validation)[-1]
    parts.insert(place % 9, leaked)
    start = sum(map(len, parts[: place % 9]))
    with pytest.raises(CorpusError, match=rf"{len(leaked) - 1:,} tokens both in train, from token {start:,} on, and in"):
        check_disjoint(with_documents(train, parts, shard_tokens=shard_tokens), validation)


def test_documents_that_only_begin_alike_or_are_as_long_are_no_overlap(splits):
    train, validation = splits
    one = max(documents(validation), key=len)
    other = one.copy()
    other[-2] = (int(other[-2]) + 1) % 256
    check_disjoint(with_documents(train, [*documents(train)[:3], other, np.concatenate([one[:9], one[-1:]])]), validation)
