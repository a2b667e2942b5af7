from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from knockout.corpus.manifest import MANIFEST, Manifest, content_digest, read_manifest
from knockout.corpus.prepare import Prepared, prepare
from knockout.corpus.reading import open_split
from knockout.corpus.shards import write_shard
from knockout.corpus.verifying import faults


@pytest.fixture(scope="module")
def prepared(declare, tmp_path_factory) -> Prepared:
    folder = tmp_path_factory.mktemp("corpora")
    source = {"kind": "copy", "symbols": 9, "documents": 400}
    exam = {"tokens": 64, "segments": 4}
    corpus = declare(source=source, tokenizer={"kind": "identity"}, evaluation=exam)
    return prepare(corpus, vocabulary=16, folder=folder, base=folder)


@pytest.fixture
def copy(prepared, tmp_path) -> Path:
    folder = tmp_path / prepared.folder.name
    shutil.copytree(prepared.folder, folder)
    for path in folder.rglob("*"):
        path.chmod(0o644)
    return folder


def found(folder: Path) -> list[str]:
    return list(faults(folder, progress=lambda stage, fraction: None))


def rewrite(folder: Path, change: Callable[[dict], None]) -> None:
    """Change a manifest, give it the digest that fits, and no checksum, as earlier releases did."""
    plain = json.loads((folder / MANIFEST).read_text())
    change(plain)
    manifest = Manifest.model_validate_json(json.dumps(plain))
    whole = manifest.model_copy(update={"digest": content_digest(manifest), "checksum": None})
    (folder / MANIFEST).write_text(whole.model_dump_json())


def replace_tokens(folder: Path, split: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change a split's tokens, and let the manifest say so of its file, but of nothing else."""
    path = folder / read_manifest(folder).split(split).shards[0].file
    tokens = change(open_split(folder, split=split).shards[0].copy())
    path.unlink()
    entry = write_shard(path, tokens_N=tokens).model_dump()
    rewrite(folder, lambda plain: plain["splits"][split].update(shards=[entry]))


def test_a_corpus_that_is_what_it_says_has_no_fault(prepared):
    assert found(prepared.folder) == []


def test_a_flipped_byte_a_missing_file_and_a_short_one_are_named_together(copy, prepared):
    train, validation = (prepared.manifest.split(name).shards[0].file for name in ("train", "validation"))
    data = bytearray((copy / train).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / train).write_bytes(data)
    (copy / validation).unlink()
    one, other = found(copy)
    assert train in one
    assert "damaged" in one
    assert validation in other
    assert "cannot be read" in other


def test_a_manifest_that_was_changed_or_is_gone_is_named(copy):
    text = (copy / MANIFEST).read_text()
    (copy / MANIFEST).write_text(text.replace('"end_of_text": 10', '"end_of_text": 11'))
    assert ["wrong digest" in fault for fault in found(copy)] == [True]
    (copy / MANIFEST).write_text(text[:-5])
    assert [MANIFEST in fault for fault in found(copy)] == [True]
    (copy / MANIFEST).unlink()
    assert ["cannot be read" in fault for fault in found(copy)] == [True]


@pytest.mark.parametrize(
    ("what", "message"),
    [("documents", "documents, its manifest says 7"), ("raw_bytes", "raw bytes, its manifest says 7")],
)
def test_a_count_that_is_not_that_of_the_tokens_is_named(copy, what, message):
    rewrite(copy, lambda plain: plain["splits"]["train"].update({what: 7}))
    [fault] = found(copy)
    assert "train: its files hold" in fault
    assert message in fault
    assert "remove the folder, and prepare the corpus again" in fault


def test_tokens_that_are_not_those_of_the_content_hash_are_named(copy):
    rewrite(copy, lambda plain: plain["splits"]["validation"].update(content_sha256="0" * 64))
    [fault] = found(copy)
    assert "validation: its tokens have SHA-256" in fault


def test_an_exam_of_other_bytes_or_outside_its_split_is_named(copy):
    rewrite(copy, lambda plain: plain["evaluation"].update(bytes=3))
    assert ["exam: its tokens stand for" in fault for fault in found(copy)] == [True]
    rewrite(copy, lambda plain: plain["evaluation"].update(starts=[10**9, 1, 2, 3]))
    assert ["were asked of it" in fault for fault in found(copy)] == [True]


def test_a_document_without_an_end_and_a_token_beyond_the_vocabulary_are_named(copy):
    replace_tokens(copy, "train", lambda tokens: np.append(tokens, tokens[:5]))
    assert any("its last 5 tokens are a document without an end" in fault for fault in found(copy))
    replace_tokens(copy, "train", lambda tokens: np.append(tokens, np.uint16(99)))
    assert any("token 99 is beyond the vocabulary of 16" in fault for fault in found(copy))


def test_a_document_of_a_text_in_both_splits_is_named_and_a_drawn_one_is_not(copy):
    tokens = open_split(copy, split="validation").shards[0]
    end = int(np.flatnonzero(tokens == 10)[0])
    shared = tokens[: end + 1].copy()
    replace_tokens(copy, "train", lambda train: np.concatenate([train, shared]))
    assert not any("both in train" in fault for fault in found(copy))
    rewrite(copy, lambda plain: plain["declaration"].update(source={"kind": "python_source"}, tokenizer={"kind": "bytes"}))
    assert any("both in train" in fault for fault in found(copy))
