from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import pytest

from knockout.corpus import inspection
from knockout.corpus.inspection import Inspection, inspect
from knockout.corpus.kept import choose, kept
from knockout.corpus.lengths import Lengths
from knockout.corpus.prepare import Prepared, prepare
from knockout.corpus.reading import open_split
from knockout.errors import CorpusError


def looked_at(prepared: Prepared, *, windows: int = 2) -> Inspection:
    return inspect(prepared.folder, windows=windows, progress=lambda fraction: None)


def plain_documents(prepared: Prepared, split: str) -> list[list[int]]:
    """A split's documents, by going through its tokens one by one."""
    tokens = np.concatenate(open_split(prepared.folder, split=split).shards).tolist()
    end = prepared.manifest.end_of_text
    found = [[]] if tokens else []
    for token in tokens:
        if token == end:
            found.append([])
        else:
            found[-1].append(token)
    assert found.pop() == []
    return found


def test_counts_are_those_of_going_through_all_tokens_one_by_one(small):
    found = looked_at(small)
    documents = {split: plain_documents(small, split) for split in ("train", "validation")}
    lengths = [len(document) for split in documents.values() for document in split]
    assert (found.lengths.documents, found.lengths.total) == (len(lengths), sum(lengths))
    assert (found.lengths.least, found.lengths.most) == (min(lengths), max(lengths))
    counts = Counter(token for split in documents.values() for document in split for token in document)
    counts[small.manifest.end_of_text] = len(lengths)
    assert [one.count for one in found.frequent] == [count for _, count in counts.most_common(len(found.frequent))]
    assert all(counts[one.token] == one.count for one in found.frequent)
    assert found.never == 512 - len(counts)
    assert [one.tokens for one in found.longest] == sorted(lengths, reverse=True)[: len(found.longest)]


def test_steps_of_any_size_find_the_same(small, monkeypatch):
    whole = looked_at(small)
    monkeypatch.setattr(inspection, "STEP_TOKENS", 1000)
    parts = looked_at(small)
    assert (parts.lengths.counts, parts.lengths.total) == (whole.lengths.counts, whole.lengths.total)
    assert (parts.longest, parts.frequent, parts.windows) == (whole.longest, whole.frequent, whole.windows)


def test_documents_that_cross_shards_are_counted_once(declare, tmp_path, monkeypatch):
    monkeypatch.setattr("knockout.corpus.shards.MAX_TOKENS", 500)
    source = {"kind": "copy", "symbols": 9, "length": {"kind": "fixed", "symbols": 30}, "documents": 200}
    corpus = declare(source=source, tokenizer={"kind": "identity"}, evaluation={"tokens": 256, "segments": 4})
    prepared = prepare(corpus, vocabulary=16, folder=tmp_path, base=tmp_path)
    found = looked_at(prepared)
    assert found.lengths.counts == {61: 200}
    assert {(one.tokens, one.beginning.count(b" ")) for one in found.longest} == {(61, 19)}


def test_windows_are_text_of_the_split_cut_where_documents_end(small):
    texts = {}
    for split in ("train", "validation"):
        tokens = np.concatenate(open_split(small.folder, split=split).shards)
        texts[split] = tokens
    found = looked_at(small, windows=3)
    assert Counter(window.split for window in found.windows) == {"train": 3, "validation": 3}
    for window in found.windows:
        tokens = texts[window.split][window.start : window.start + 96].tolist()
        pieces = [list(part) for ends, part in groupby(tokens, lambda t: t == small.manifest.end_of_text) if not ends]
        assert small.manifest.end_of_text in tokens
        sizes = [sum(small.manifest.token_bytes[token] for token in piece) for piece in pieces]
        assert [len(piece) for piece in window.pieces if piece] == sizes


def test_the_longest_document_begins_with_its_own_text(small):
    longest = looked_at(small).longest[0]
    sources = [path.read_bytes() for pattern in small.manifest.declaration.source.paths for path in _files(pattern)]
    assert any(text.startswith(longest.beginning) for text in sources)


def _files(pattern: str) -> Iterator[Path]:
    return Path(pattern).parent.glob(Path(pattern).name)


def test_symbols_of_a_generator_are_shown_by_their_names(declare, tmp_path):
    source = {"kind": "dyck", "brackets": 2, "depth": 2, "documents": 300}
    corpus = declare(source=source, tokenizer={"kind": "identity"}, evaluation={"tokens": 256, "segments": 4})
    found = looked_at(prepare(corpus, vocabulary=8, folder=tmp_path, base=tmp_path))
    shown = {character for window in found.windows for piece in window.pieces for character in piece.decode()}
    assert shown == set("([)] ")


@pytest.mark.parametrize("sizes", [[1], [3, 3, 3], list(range(1, 5000)), [1, 100_000, 7_000_000]])
def test_quantiles_are_those_of_sorting_to_one_part_in_2048(sizes):
    lengths = Lengths()
    for part in np.array_split(np.array(sizes), 3):
        lengths.add(part)
    for share in (0.01, 0.1, 0.5, 0.9, 1.0):
        exact = sorted(sizes)[max(0, int(np.ceil(share * len(sizes))) - 1)]
        assert exact * (1 - 1 / 2048) <= lengths.quantile(share) <= exact


def test_a_histogram_holds_every_document_in_at_most_twelve_rows_that_follow_each_other():
    lengths = Lengths()
    sizes = (2 ** np.random.default_rng(0).uniform(0, 30, 5000)).astype(np.int64)
    lengths.add(sizes)
    rows = lengths.histogram()
    assert len(rows) <= 12
    assert sum(documents for *_, documents in rows) == 5000
    assert all(later[0] == former[1] + 1 for former, later in pairwise(rows))
    assert all(documents == ((sizes >= first) & (sizes <= last)).sum() for first, last, documents in rows)
    assert rows[0][0] <= sizes.min()
    assert sizes.max() <= rows[-1][1]


def test_memory_does_not_grow_with_the_number_of_documents():
    lengths = Lengths()
    lengths.add(np.arange(1, 2_000_000))
    assert len(lengths.counts) < 30_000


@pytest.fixture(scope="module")
def twice(declare, tmp_path_factory):
    """One corpus with two vocabularies, and two contents of one name with the same."""
    folder = tmp_path_factory.mktemp("corpora")
    exam = {"tokens": 64, "segments": 4}
    for name, documents, vocabulary in (("copies", 100, 16), ("copies", 100, 32), ("other", 100, 16), ("other", 120, 16)):
        source = {"kind": "copy", "symbols": 9, "documents": documents}
        corpus = declare(corpus=name, source=source, tokenizer={"kind": "identity"}, evaluation=exam)
        prepare(corpus, vocabulary=vocabulary, folder=folder, base=folder)
    return folder


def test_prepared_corpora_are_listed_by_name_and_vocabulary(twice):
    found = kept(twice)
    assert [(one.name, one.vocabulary) for one in found] == [("copies", 16), ("copies", 32), ("other", 16), ("other", 16)]
    assert all(one.manifest is not None and one.num_bytes > 1000 for one in found)


def test_one_corpus_is_chosen_by_its_vocabulary_or_its_folder_and_several_are_told(twice):
    assert choose("copies", vocabulary=32, folder=twice, said="copies").vocabulary == 32
    with pytest.raises(CorpusError, match=r"copies is prepared 2 times; say which with --vocabulary.*\n  copies-16-.*\n"):
        choose("copies", vocabulary=None, folder=twice, said="copies")
    with pytest.raises(CorpusError, match="not prepared with a vocabulary of 64, but as:\n  copies-16-"):
        choose("copies", vocabulary=64, folder=twice, said="copies")
    with pytest.raises(CorpusError, match="the name of the folder in place of its own"):
        choose("other", vocabulary=16, folder=twice, said="other")
    name = kept(twice)[-1].folder.name
    assert choose(name, vocabulary=None, folder=twice, said=name).folder.name == name
    with pytest.raises(CorpusError, match=r"`knockout corpus prepare x/new\.yaml --vocabulary 16` does it"):
        choose("new", vocabulary=16, folder=twice, said="x/new.yaml")
