"""What is said of a prepared mixture."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from knockout.corpus.inspection import Inspection, inspect
from knockout.corpus.prepare import prepare
from knockout.corpus.preparing.workers import Here
from knockout.declare.corpus import Corpus
from knockout.report.corpora import inspection_data, inspection_text, remarks


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Inspection:
    """100 books and 1,000 pages of as many bytes each, asked for in equal shares, and a hidden file beside the books."""
    folder = tmp_path_factory.mktemp("mixed")
    for name, count in (("book", 100), ("page", 1000)):
        lines = (json.dumps({"text": f"{name} {number:04d} and words"}) + "\n" for number in range(count))
        (folder / name).mkdir()
        (folder / name / "a.jsonl").write_text("".join(lines))
    (folder / "book/.b.jsonl").write_text("")
    sources = [{"name": name, "share": 2, "source": {"kind": "files", "paths": [name]}} for name in ("book", "page")]
    plain = {
        "corpus": "mixed",
        "source": {"kind": "mixture", "sources": sources},
        "tokenizer": {"kind": "bytes"},
        "validation": 0.3,
        "evaluation": {"tokens": 64, "segments": 4},
    }
    corpus = Corpus.model_validate_json(json.dumps(plain))
    made = prepare(corpus, vocabulary=257, folder=folder / "corpora", base=folder, workers=Here())
    return inspect(made.folder, progress=lambda _: None)


def test_each_source_of_a_mixture_is_shown_with_the_share_it_reached_and_what_is_left_over(mixed: Inspection):
    book, page = inspection_data(mixed)["sources"]
    total = mixed.manifest.splits.train.raw_bytes + mixed.manifest.splits.validation.raw_bytes
    assert (book["name"], book["share"], book["documents"], book["left_documents"]) == ("book", 0.5, 100, 0)
    assert book["share_reached"] == 1900 / total
    assert page["documents"] + page["left_documents"] == 1000
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(inspection_text(mixed))
    said = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert f"page 50.0% {page['share_reached']:.1%} {page['documents']:,} {page['left_documents']:,}" in said


def test_what_is_passed_over_and_left_over_is_remarked(mixed: Inspection):
    left = mixed.manifest.sources[1].left_documents
    passed, left_over = remarks(mixed.manifest)
    assert passed == "passed over: 1 hidden files"
    assert left_over.startswith(f"left over to keep the shares: {left:,} documents of page (")
