from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from knockout.corpus.manifest import Manifest, content_digest, shares_reached
from knockout.corpus.prepare import Prepared, prepare
from knockout.declare.corpus import Corpus
from knockout.errors import CorpusError


def mixture(folder: Path, *, sizes: dict[str, int], shares: dict[str, float]) -> Corpus:
    folder.mkdir(exist_ok=True)
    for name, size in sizes.items():
        lines = (json.dumps({"text": f"{name} {number:06d} and some more words"}) + "\n" for number in range(size))
        (folder / f"{name}.jsonl").write_text("".join(lines))
    sources = [
        {"name": name, "share": share, "source": {"kind": "files", "paths": [f"{name}.jsonl"], "format": "jsonl"}}
        for name, share in shares.items()
    ]
    plain = {
        "corpus": "mixed",
        "source": {"kind": "mixture", "sources": sources},
        "tokenizer": {"kind": "bytes"},
        "validation": 0.1,
        "evaluation": {"tokens": 64, "segments": 4},
    }
    return Corpus.model_validate_json(json.dumps(plain))


def prepared_in(folder: Path, corpus: Corpus) -> Prepared:
    return prepare(corpus, vocabulary=300, folder=folder / "corpora", base=folder)


def both(read_back, prepared: Prepared) -> list[bytes]:
    return [text.encode() for split in ("train", "validation") for text in read_back(prepared, split)]


def test_the_scarcest_source_is_whole_and_the_others_are_thinned_to_their_shares(tmp_path, read_back):
    corpus = mixture(tmp_path, sizes={"book": 500, "code": 4000}, shares={"book": 1.0, "code": 3.0})
    found = both(read_back, prepared_in(tmp_path, corpus))
    assert len(set(found)) == len(found)
    books = [text for text in found if text.startswith(b"book")]
    # 1500 of 4000 are to stay; each does with chance 3/8, so their number has a standard deviation of 31
    assert len(books) == 500
    assert abs(len(found) - 500 - 1500) < 4 * 31


def test_whether_a_document_stays_follows_from_its_hash_alone(tmp_path, read_back):
    corpus = mixture(tmp_path, sizes={"book": 500, "code": 4000}, shares={"book": 1.0, "code": 3.0})
    found = {text for text in both(read_back, prepared_in(tmp_path, corpus)) if text.startswith(b"code")}
    texts = [f"code {number:06d} and some more words".encode() for number in range(4000)]
    kept = {text for text in texts if int.from_bytes(hashlib.sha256(text).digest()[8:16], "big") < 2**64 * 3 / 8}
    assert found == kept


def test_more_of_a_rich_source_only_thins_it_further(tmp_path, read_back):
    few = mixture(tmp_path / "few", sizes={"book": 200, "code": 1000}, shares={"book": 1.0, "code": 1.0})
    many = mixture(tmp_path / "many", sizes={"book": 200, "code": 2000}, shares={"book": 1.0, "code": 1.0})
    kept = set(both(read_back, prepared_in(tmp_path / "many", many)))
    there = {f"code {number:06d} and some more words".encode() for number in range(1000)}
    assert kept & there <= set(both(read_back, prepared_in(tmp_path / "few", few)))


def test_a_source_without_text_is_named(tmp_path):
    corpus = mixture(tmp_path, sizes={"book": 0, "code": 10}, shares={"book": 1.0, "code": 1.0})
    with pytest.raises(CorpusError, match="corpus mixed: no text is left in book: its files hold no documents: mend"):
        prepared_in(tmp_path, corpus)


def test_a_source_whose_rows_are_all_filtered_is_named_with_their_number(tmp_path):
    corpus = mixture(tmp_path, sizes={"book": 12, "code": 10}, shares={"book": 1.0, "code": 1.0})
    plain = corpus.model_dump(mode="json", by_alias=True)
    plain["source"]["sources"][0]["source"]["where"] = {"column": "text", "is": "equals", "value": "none of them"}
    with pytest.raises(CorpusError, match="no text is left in book: 12 documents do not meet `where`: mend"):
        prepared_in(tmp_path, Corpus.model_validate_json(json.dumps(plain)))


def test_what_a_mixture_holds_and_leaves_over_of_each_source_is_in_its_manifest(tmp_path, read_back):
    corpus = mixture(tmp_path, sizes={"book": 500, "code": 4000}, shares={"book": 1.0, "code": 3.0})
    with (tmp_path / "code.jsonl").open("a") as file:
        file.write((tmp_path / "code.jsonl").read_text())  # each a second time
    manifest = (prepared := prepared_in(tmp_path, corpus)).manifest
    book, code = manifest.sources
    found = [text for text in both(read_back, prepared) if text.startswith(b"code")]
    assert (book.name, book.share, book.documents, book.left_documents) == ("book", 0.25, 500, 0)
    assert (code.name, code.share, code.documents) == ("code", 0.75, len(found))
    assert code.documents + code.left_documents == 8000
    assert code.raw_bytes == sum(map(len, found))
    assert code.left_bytes == code.left_documents * len(found[0])
    # of 4,000 texts, each there twice, 750 are to stay, with a standard deviation of 25
    assert shares_reached(manifest)[1] == pytest.approx(0.75, abs=4 * 2 * 25 / 2000)
    known = json.loads(manifest.model_dump_json())
    del known["sources"]
    assert Manifest.model_validate_json(json.dumps(known)).digest == content_digest(manifest)
