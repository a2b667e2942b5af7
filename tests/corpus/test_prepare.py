from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knockout.corpus import shards
from knockout.corpus.encoding.encoders import open_encoder
from knockout.corpus.manifest import read_manifest
from knockout.corpus.prepare import Prepared, find, prepare
from knockout.corpus.reading import open_split
from knockout.errors import CorpusError

FILLER = [f"document {number}: é 日本語 🙂 \n" for number in range(60)]


def tokens_of(prepared: Prepared, split: str) -> np.ndarray:
    opened = open_split(prepared.folder, split=split)
    return opened.gather(np.array([0]), length=opened.num_tokens)[0]


def documents_of(prepared: Prepared, split: str) -> list[str]:
    encoder = open_encoder(prepared.folder, manifest=prepared.manifest)
    tokens = tokens_of(prepared, split)
    ends = np.flatnonzero(tokens == prepared.manifest.end_of_text)
    assert ends[-1] == len(tokens) - 1
    return [encoder.decode(part).decode() for part in np.split(tokens, ends + 1)[:-1]]


def prepare_texts(declare, texts: list[str], folder: Path, *, vocabulary: int = 270, **declaration) -> Prepared:
    folder.mkdir(exist_ok=True)
    lines = (json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "texts.jsonl").write_text("".join(lines))
    source = {"kind": "files", "paths": ["texts.jsonl"], "format": "jsonl"}
    plain = {"source": source, "evaluation": {"tokens": 64, "segments": 4}} | declaration
    return prepare(declare(**plain), vocabulary=vocabulary, folder=folder / "corpora", base=folder)


@pytest.mark.parametrize("tokenizer", [{"kind": "bytes"}, {"kind": "bpe"}])
@settings(max_examples=25, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=20))
def test_any_documents_come_back_from_the_shards_once_each_on_one_side(declare, tokenizer, texts):
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare_texts(declare, FILLER + texts, Path(folder), tokenizer=tokenizer)
        train, validation = documents_of(prepared, "train"), documents_of(prepared, "validation")
    plain = [text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n") for text in texts]
    kept = [text for text in FILLER + plain if text]
    assert Counter(train + validation) == Counter(kept)
    assert not set(train) & set(validation)
    assert prepared.manifest.counts.empty == len(FILLER + texts) - len(kept)
    assert prepared.manifest.counts.duplicates == len(kept) - len(set(kept))


def test_raw_bytes_are_those_of_the_text_for_every_script(declare, tmp_path):
    texts = [f"{number} é ñ ß 日本語 한국어 🙂🏳️‍🌈 \u0301\n" for number in range(200)]
    manifest = prepare_texts(declare, texts, tmp_path).manifest
    counted = manifest.splits.train.raw_bytes + manifest.splits.validation.raw_bytes
    assert counted == sum(len(text.encode("utf-8")) for text in texts)


def test_token_bytes_over_a_split_are_its_raw_bytes(small):
    token_bytes = np.array(small.manifest.token_bytes)
    for split in ("train", "validation"):
        assert token_bytes[tokens_of(small, split)].sum() == small.manifest.split(split).raw_bytes
    assert token_bytes[small.manifest.end_of_text] == 0


def test_text_that_looks_like_a_marker_stays_text(declare, tmp_path):
    texts = [*FILLER, *(f"<|endoftext|> </s> <eos> {number}" for number in range(40))]
    prepared = prepare_texts(declare, texts, tmp_path)
    found = documents_of(prepared, "train") + documents_of(prepared, "validation")
    assert Counter(found) == Counter(texts)


def test_the_digest_does_not_depend_on_the_names_and_order_of_files(declare, tmp_path):
    digests = set()
    for reverse in (False, True):
        base = tmp_path / str(reverse)
        base.mkdir()
        for place, text in enumerate(reversed(FILLER) if reverse else FILLER):
            (base / f"{place}.txt").write_text(text)
        corpus = declare(source={"kind": "files", "paths": ["*.txt"]}, evaluation={"tokens": 64, "segments": 4})
        digests.add(prepare(corpus, vocabulary=270, folder=base / "corpora", base=base).manifest.digest)
    assert len(digests) == 1


def test_another_vocabulary_text_or_exam_is_another_digest(declare, tmp_path):
    prepared = [
        prepare_texts(declare, FILLER, tmp_path / "a"),
        prepare_texts(declare, FILLER, tmp_path / "b", vocabulary=271),
        prepare_texts(declare, [*FILLER, "more"], tmp_path / "c"),
        prepare_texts(declare, FILLER, tmp_path / "d", evaluation={"tokens": 32, "segments": 4}),
    ]
    assert len({each.manifest.digest for each in prepared}) == 4


def test_an_exam_larger_than_the_validation_split_is_refused_with_what_there_is(declare, tmp_path):
    with pytest.raises(CorpusError) as caught:
        prepare_texts(declare, FILLER, tmp_path, evaluation={"tokens": 32_768})
    assert "needs 32,769: lower evaluation.tokens to at most" in str(caught.value)
    most = int(str(caught.value).split("at most ")[1].split(", raise")[0].replace(",", ""))
    prepared = prepare_texts(declare, FILLER, tmp_path, evaluation={"tokens": most})
    assert most < prepared.manifest.splits.validation.tokens <= most + 16


def test_a_vocabulary_that_the_text_cannot_fill_is_refused_with_the_largest_that_works(declare, tmp_path):
    with pytest.raises(CorpusError) as caught:
        prepare_texts(declare, FILLER, tmp_path, vocabulary=5000)
    most = int(str(caught.value).split("at most ")[1].split(",")[0])
    assert prepare_texts(declare, FILLER, tmp_path, vocabulary=most).manifest.vocabulary == most


@pytest.mark.parametrize("tokenizer", ["bpe", "bytes"])
def test_a_vocabulary_below_257_is_refused(declare, tmp_path, tokenizer):
    with pytest.raises(CorpusError, match="256 is too small: the 256 bytes and end-of-text are 257"):
        prepare_texts(declare, FILLER, tmp_path, vocabulary=256, tokenizer={"kind": tokenizer})


def test_text_that_is_empty_or_one_document_is_refused(declare, tmp_path):
    with pytest.raises(CorpusError, match="no text is left: 2 documents are empty"):
        prepare_texts(declare, ["", "\ufeff"], tmp_path / "a")
    with pytest.raises(CorpusError, match="none of its 1 documents falls into the"):
        prepare_texts(declare, ["alone"], tmp_path / "b")


def test_large_vocabularies_take_wider_tokens(declare, tmp_path):
    prepared = prepare_texts(declare, FILLER, tmp_path, vocabulary=70_000, tokenizer={"kind": "bytes"})
    assert open_split(prepared.folder, split="train").shards[0].dtype == np.uint32
    assert sorted(documents_of(prepared, "train") + documents_of(prepared, "validation")) == sorted(FILLER)


def test_shards_of_any_size_hold_the_same_tokens(declare, tmp_path, monkeypatch):
    whole = prepare_texts(declare, FILLER, tmp_path / "a")
    monkeypatch.setattr(shards, "MAX_TOKENS", 100)
    cut = prepare_texts(declare, FILLER, tmp_path / "b")
    assert len(cut.manifest.splits.train.shards) > 5
    assert max(shard.tokens for shard in cut.manifest.splits.train.shards) == 100
    np.testing.assert_array_equal(tokens_of(cut, "train"), tokens_of(whole, "train"))
    assert cut.manifest.digest == whole.manifest.digest


def test_the_manifest_on_disk_is_the_one_returned_and_every_file_is_read_only(small):
    assert read_manifest(small.folder) == small.manifest
    assert all(not path.stat().st_mode & 0o222 for path in small.folder.iterdir())


def test_progress_runs_through_the_stages_and_each_ends_at_one(declare, tmp_path):
    seen: dict[str, float] = {}
    sizes: dict[str, int] = {}

    def progress(stage: str, fraction: float, num_bytes: int) -> None:
        seen[stage], sizes[stage] = fraction, num_bytes

    splits = prepare(declare(), vocabulary=300, folder=tmp_path, base=tmp_path, progress=progress).manifest.splits
    assert (sizes["encoding train"], sizes["encoding validation"]) == (splits.train.raw_bytes, splits.validation.raw_bytes)
    assert list(seen) == ["reading", "tokenizer", "encoding validation", "encoding train", "floors"]
    assert set(seen.values()) == {1.0}


def test_a_sample_too_small_for_the_vocabulary_grows_until_it_is_enough(declare, tmp_path):
    sampled = declare(tokenizer={"kind": "bpe", "sample_bytes": 1024})
    prepared = prepare(sampled, vocabulary=2000, folder=tmp_path, base=tmp_path)
    assert (prepared.manifest.vocabulary, min(prepared.manifest.token_bytes[:-1])) == (2000, 1)


def test_copies_of_a_document_are_not_packed_side_by_side(declare, tmp_path):
    prepared = prepare_texts(declare, [*FILLER, *[FILLER[0]] * 5], tmp_path)
    side = max((documents_of(prepared, split) for split in ("train", "validation")), key=lambda docs: docs.count(FILLER[0]))
    places = [place for place, text in enumerate(side) if text == FILLER[0]]
    assert len(places) == 6
    assert np.diff(places).max() > 1


def test_a_refused_preparation_leaves_nothing_behind(declare, tmp_path):
    with pytest.raises(CorpusError, match="the evaluation needs"):
        prepare_texts(declare, FILLER, tmp_path, evaluation={"tokens": 32_768})
    assert not [path for path in (tmp_path / "corpora").iterdir() if path.is_dir()]


def test_what_was_never_prepared_is_found_missing_without_asking_its_store(declare, tmp_path):
    elsewhere = {"kind": "files", "paths": ["http://127.0.0.1:1/a.jsonl"], "format": "jsonl"}
    corpus = declare(source=elsewhere)
    assert find(corpus, vocabulary=512, folder=tmp_path, base=tmp_path) is None
    (tmp_path / "small-512-0123456789abcdef").mkdir()
    with pytest.raises(CorpusError, match=r"127\.0\.0\.1:1"):
        find(corpus, vocabulary=512, folder=tmp_path, base=tmp_path)


def test_text_that_is_not_on_this_machine_is_told_before_anything_was_prepared(declare, tmp_path):
    shares = [{"name": "a", "share": 1, "source": {"kind": "files", "paths": ["nowhere/*.txt"]}}]
    mixture = {"kind": "mixture", "sources": [*shares, {"name": "b", "share": 1, "source": {"kind": "python_source"}}]}
    with pytest.raises(CorpusError, match=r"nowhere/\*\.txt"):
        find(declare(source=mixture), vocabulary=512, folder=tmp_path, base=tmp_path)


def test_a_damaged_corpus_is_prepared_again_and_said_to_have_been_damaged(declare, tmp_path):
    source = {"kind": "copy", "symbols": 9, "documents": 100}
    corpus = declare(source=source, tokenizer={"kind": "identity"}, evaluation={"tokens": 64, "segments": 4})
    first = prepare(corpus, vocabulary=16, folder=tmp_path, base=tmp_path)
    assert (first.reused, first.damage) == (False, None)
    shard = next(first.folder.glob("train*.arrow"))
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-1])
    again = prepare(corpus, vocabulary=16, folder=tmp_path, base=tmp_path)
    assert (again.reused, again.manifest) == (False, first.manifest)
    assert again.damage is not None
    assert str(shard) in again.damage
