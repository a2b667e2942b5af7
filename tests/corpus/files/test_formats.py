"""What files hold, and which are meant, where their declaration does not say it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from knockout.corpus.prepare import Prepared, prepare
from knockout.corpus.preparing.workers import Here
from knockout.declare.corpus import Corpus
from knockout.errors import CorpusError

TEXTS = [f"text {number}" for number in range(40)]
TABLE = pa.table({"text": TEXTS})


@pytest.fixture
def stored(tmp_path):
    """The same texts in folders named by their format, and a text file."""
    for name in ("jsonl", "parquet", "arrow", "zst"):
        (tmp_path / name).mkdir()
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    (tmp_path / "jsonl/a.JSONL").write_text(lines)
    (tmp_path / "zst/a.jsonl.zst").write_bytes(pa.Codec("zstd").compress(lines.encode(), asbytes=True))
    pq.write_table(TABLE, tmp_path / "parquet/a.parquet")
    with pa.ipc.new_file(tmp_path / "arrow/a.arrow", TABLE.schema) as file:
        file.write_table(TABLE)
    (tmp_path / "a.md").write_text("some text")
    return tmp_path


def prepared(source: dict[str, object], *, base: Path) -> Prepared:
    plain = {"corpus": "told", "source": {"kind": "files", **source}, "tokenizer": {"kind": "bytes"}, "validation": 0.3}
    corpus = Corpus.model_validate_json(json.dumps(plain | {"evaluation": {"tokens": 16, "segments": 2}}))
    return prepare(corpus, vocabulary=257, folder=base / "corpora", base=base, workers=Here())


@pytest.mark.parametrize("path", ["jsonl", "zst", "parquet", "arrow", "jsonl/*", "parquet/**"])
def test_the_format_follows_from_the_names_of_the_files(stored, read, path):
    assert sorted(read({"paths": path}, base=stored)) == sorted(text.encode() for text in TEXTS)


def test_a_corpus_is_the_same_one_whether_its_format_was_written_or_found(stored):
    found = prepared({"paths": ["parquet"]}, base=stored)
    written = prepared({"paths": ["parquet"], "format": "parquet"}, base=stored)
    assert written.reused
    assert written.folder == found.folder


def test_files_of_several_formats_are_refused_unless_one_is_named(stored, refusal, read):
    message = refusal({"paths": ["jsonl", "parquet", "a.md"]}, base=stored)
    assert "text (a.md); JSON lines (a.JSONL); Parquet (a.parquet); say which with `format`" in message
    assert read({"paths": ["a.md", "jsonl"], "format": "text"}, base=stored)[0] == b"some text"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"paths": ["parquet"], "separator": "x"}, "source.separator: only text has one; format is parquet, by the names"),
        ({"paths": ["a.*"], "column": "body"}, "source.column: text has no columns"),
    ],
)
def test_settings_that_do_not_suit_what_is_found_are_refused(stored, refusal, settings, reason):
    assert reason in refusal(settings, base=stored)


@pytest.mark.parametrize(("path", "name"), [("parquet/a.parquet", "parquet"), ("arrow/a.arrow", "arrow")])
@pytest.mark.parametrize("settings", [{"format": "text", "undecodable": "skip"}, {"format": "jsonl"}, {}], ids=str)
def test_a_table_that_is_read_as_text_is_named(stored, refusal, path, name, settings):
    (stored / path).rename(stored / "export.dat")
    message = refusal({"paths": ["export.dat"], **settings}, base=stored)
    assert f"export.dat: this is {name.title()}, not text or JSON lines: write `format: {name}`" in message


def test_a_text_may_begin_as_a_table_does(tmp_path, read):
    (tmp_path / "a.txt").write_text("PAR1: the first part")
    assert read({"paths": ["a.txt"]}, base=tmp_path) == [b"PAR1: the first part"]


def test_a_stream_of_arrow_is_a_table_too(stored, refusal):
    with pa.ipc.new_stream(stored / "b.txt", TABLE.schema) as file:
        file.write_table(TABLE)
    assert "this is Arrow" in refusal({"paths": ["b.txt"]}, base=stored)


@pytest.fixture
def notes(tmp_path):
    """40 notes and what resembles them, beside a declaration's folder that is a link."""
    (tmp_path / "notes/.git").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "declared").symlink_to(tmp_path / "data")
    for number in range(40):
        (tmp_path / f"notes/{number}.md").write_text(f"note {number}")
    for name in (".git/a.md", ".b.md", "UPPER.MD", "Mixed.Md", "other.txt"):
        (tmp_path / "notes" / name).write_text(name)
    (tmp_path / "notes/link.md").symlink_to(tmp_path / "nowhere")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "taken", "in_another_case"),
    [("../notes/**/*.md", 40, 2), ("../notes", 43, 0), ("../notes/[0-9]*.md", 40, 0)],
)
def test_what_is_passed_over_is_counted(notes, pattern, taken, in_another_case):
    made = prepared({"paths": [pattern]}, base=notes / "declared").manifest
    hidden_and_links = (made.counts.hidden_files, made.counts.broken_links)
    assert made.splits.train.documents + made.splits.validation.documents == taken
    assert made.counts.files_in_another_case == in_another_case
    assert hidden_and_links == ((0, 0) if "[" in pattern else (2, 1))


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("notes/**/*.md", "paths start at the declaration's folder: did you mean '../notes/**/*.md'?"),
        ("~/nowhere/*.md", "'~/nowhere/*.md' is '/home/of/nowhere/*.md'"),
        ("../[old]/*.md", "the name '[old]' is '[[]old]'"),
        ("../Notes/*.MD", "notes/a.md is in another case"),
        ("../notes/sub/*.md", "notes/sub/.a.md is hidden"),
    ],
)
def test_a_path_that_names_nothing_is_told_with_what_may_be_meant(tmp_path, monkeypatch, pattern, hint):
    monkeypatch.setenv("HOME", "/home/of")
    for name in ("data", "notes/sub", "[old]"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("notes/a.md", "notes/sub/.a.md", "[old]/a.md"):
        (tmp_path / name).write_text("text")
    with pytest.raises(CorpusError) as caught:
        prepared({"paths": [pattern]}, base=tmp_path / "data")
    message = str(caught.value)
    assert message.startswith(f"corpus told: source.paths: no files match {pattern!r}, seen from {tmp_path / 'data'}")
    assert hint in message
    assert "/../" not in message


def test_a_file_beside_the_declarations_folder_is_named_without_steps_back(tmp_path, refusal):
    (tmp_path / "data").mkdir()
    (tmp_path / "a.txt").write_bytes(b"\xff")
    assert f"{tmp_path}/a.txt: line 1" in refusal({"paths": ["../a.txt"]}, base=tmp_path / "data")


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_quoted_number_in_a_condition_is_the_mistake_that_is_told(tmp_path, refusal, form):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "score": 3}\n')
    pq.write_table(pa.table({"text": ["a"], "score": [3]}), tmp_path / "a.parquet")
    where = {"column": "score", "is": "at_least", "value": "3"}
    message = refusal({"paths": [f"a.{form}"], "where": where}, base=tmp_path)
    assert "since `where` compares it with '3': a number is written without quotes" in message
