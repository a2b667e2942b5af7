from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path

import pytest

from knockout.corpus import prepare as preparing
from knockout.corpus.prepare import Prepared, prepare
from knockout.corpus.preparing import chunks, runs
from knockout.corpus.preparing.workers import Here, Processes
from knockout.declare.corpus import Corpus

DRAW = random.Random(0)
WORDS = [f"{DRAW.choice('bcdfgh')}{DRAW.choice('aeiou')}{number}" for number in range(3000)]


def prepared_in(folder: Path, texts: list[str], *, near: object, workers=None) -> Prepared:
    folder.mkdir()
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    plain = {
        "corpus": "texts",
        "source": {"kind": "files", "paths": ["texts.jsonl"], "format": "jsonl"},
        "tokenizer": {"kind": "bytes"},
        "validation": 0.2,
        "near_duplicates": near,
        "evaluation": {"tokens": 64, "segments": 4},
    }
    corpus = Corpus.model_validate_json(json.dumps(plain))
    return prepare(corpus, vocabulary=300, folder=folder / "corpora", base=folder, workers=workers or Here())


def text(seed: int) -> list[str]:
    return random.Random(seed).choices(WORDS, k=200)


def shingles(words: str) -> set[tuple[str, ...]]:
    parts = words.split()
    return {tuple(parts[start : start + 5]) for start in range(len(parts) - 4)}


def similarity(one: str, other: str) -> float:
    return len(shingles(one) & shingles(other)) / len(shingles(one) | shingles(other))


def originals(count: int) -> list[str]:
    return [" ".join(text(seed)) for seed in range(count)]


def with_near_copies() -> tuple[list[str], list[set[str]]]:
    """60 texts, of each of the first 12 three copies with one or two words changed, and the groups."""
    texts = originals(60)
    groups = []
    for seed, one in enumerate(texts[:12]):
        draw = random.Random(seed)
        copies = [one]
        for _ in range(3):
            words = one.split()
            for _ in range(draw.randrange(1, 3)):
                words[draw.randrange(len(words))] = "changed"
            copies.append(" ".join(words))
        groups.append(set(copies))
        texts += copies[1:]
    return texts, groups


def both(read_back, prepared: Prepared) -> list[str]:
    return [text for split in ("train", "validation") for text in read_back(prepared, split)]


def test_of_near_copies_one_stays_and_no_other_text_goes(tmp_path, read_back):
    texts, groups = with_near_copies()
    for group in groups:
        assert min(similarity(one, other) for one in group for other in group) > 0.8
    prepared = prepared_in(tmp_path / "a", texts, near={"kind": "minhash", "threshold": 0.7})
    kept = both(read_back, prepared)
    assert set(originals(60)[12:]) <= set(kept)
    assert [len(group & set(kept)) for group in groups] == [1] * 12
    assert prepared.manifest.counts.near_duplicates == len(texts) - len(kept) == 36


def test_which_one_stays_depends_on_no_order_and_no_worker(tmp_path, monkeypatch, read_back):
    texts, _ = with_near_copies()
    near = {"kind": "minhash", "threshold": 0.7}
    digests = {prepared_in(tmp_path / "whole", texts, near=near).manifest.digest}
    monkeypatch.setattr(preparing, "chunks_of", partial(chunks.chunks_of, chunk_bytes=20_000))
    monkeypatch.setattr(runs, "RUN_BYTES", 8000)
    random.Random(1).shuffle(texts)
    workers = Processes(2)
    digests.add(prepared_in(tmp_path / "parts", texts, near=near, workers=workers).manifest.digest)
    workers.close()
    digests.add(prepared_in(tmp_path / "here", texts[::-1], near=near).manifest.digest)
    assert len(digests) == 1


def test_texts_that_share_little_all_stay_but_for_exact_copies(tmp_path, monkeypatch, read_back):
    monkeypatch.setattr(runs, "RUN_BYTES", 8000)  # so that copies lie in different runs
    texts = originals(40) + originals(2) * 3
    prepared = prepared_in(tmp_path / "a", texts, near={"kind": "minhash"})
    assert sorted(both(read_back, prepared)) == sorted(originals(40))
    assert (prepared.manifest.counts.duplicates, prepared.manifest.counts.near_duplicates) == (0, 6)
    kept = prepared_in(tmp_path / "b", texts, near={"kind": "none"})
    assert sorted(both(read_back, kept)) == sorted(texts)
    assert (kept.manifest.counts.duplicates, kept.manifest.counts.near_duplicates) == (6, 0)


def test_exact_copies_of_near_copies_are_counted_once_each(tmp_path, read_back):
    texts, groups = with_near_copies()
    copied = [text for group in groups for text in sorted(group)] * 2
    prepared = prepared_in(tmp_path / "a", texts + copied, near={"kind": "minhash", "threshold": 0.7})
    kept = both(read_back, prepared)
    assert len(set(kept)) == len(kept) == 60
    assert prepared.manifest.counts.near_duplicates == len(texts + copied) - 60


@pytest.mark.parametrize("threshold", [0.5, 1.0])
def test_texts_without_words_are_copies_of_nothing_but_themselves(tmp_path, read_back, threshold):
    blank = ["\t", " ", " \n", "\n" * 30]
    near = {"kind": "minhash", "threshold": threshold}
    prepared = prepared_in(tmp_path / "a", originals(40) + blank + ["\t"], near=near)
    assert sorted(both(read_back, prepared)) == sorted(originals(40) + blank)
    assert prepared.manifest.counts.near_duplicates == 1


def test_a_corpus_without_near_copies_has_the_digest_that_it_has_unchecked(tmp_path):
    checked = prepared_in(tmp_path / "a", originals(40), near={"kind": "minhash"})
    assert checked.manifest.digest == prepared_in(tmp_path / "b", originals(40), near={"kind": "none"}).manifest.digest


def test_generated_symbols_have_no_near_copies():
    plain = {
        "corpus": "chain",
        "source": {"kind": "markov", "order": 1, "alphabet": 16, "documents": 60, "length": 60},
        "tokenizer": {"kind": "identity"},
        "near_duplicates": {"kind": "minhash"},
    }
    with pytest.raises(ValueError, match="only text has words to compare; the source is a generator"):
        Corpus.model_validate_json(json.dumps(plain))
