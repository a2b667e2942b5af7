from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knockout.corpus.files.addresses import find_files
from knockout.corpus.files.outcomes import Skipped
from knockout.corpus.preparing.chunks import CHUNK_BYTES, chunks_of, read_chunk
from knockout.corpus.text import pieces
from knockout.declare.text_sources import Files, PythonSource
from knockout.errors import CorpusError


def files(*paths: str, **settings: object) -> Files:
    return Files(paths=paths, **settings)


def read(source: Files | PythonSource, base: Path, *, chunk_bytes: int = CHUNK_BYTES) -> list[bytes | str]:
    """Documents in order, and the reasons of those that were skipped."""
    chunks = chunks_of(source, base=base, chunk_bytes=chunk_bytes)
    found = [document for chunk in chunks for document in read_chunk(source, chunk, base=base)]
    return [document.reason if isinstance(document, Skipped) else document for document in found]


def refusal(source: Files, base: Path) -> str:
    with pytest.raises(CorpusError) as caught:
        read(source, base)
    return str(caught.value)


def write_jsonl(path: Path, *lines: object) -> None:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")


def test_byte_order_mark_and_foreign_line_ends_do_not_change_a_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n")
    assert read(files("a.txt"), tmp_path) == [b"one\ntwo\nthree\n"]


def test_files_come_in_the_order_of_their_paths_bytes_and_each_once(tmp_path):
    for name in ("b.txt", "Z.txt", "é.txt", "sub/a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    source = files("*.txt", "sub", "**/a.txt", "b.txt")
    assert read(source, tmp_path) == [b"Z.txt", b"b.txt", b"sub/a.txt", "é.txt".encode()]


def test_a_folder_gives_the_files_of_its_format_and_no_hidden_ones(tmp_path):
    for name in ("a.jsonl", "b.txt", ".c.jsonl"):
        write_jsonl(tmp_path / name, {"text": name})
    assert [Path(path).name for path in find_files(files(".", format="jsonl"), base=tmp_path)] == ["a.jsonl"]


def test_every_pattern_that_matches_nothing_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    message = refusal(files("a.txt", "b*.txt", "missing"), tmp_path)
    assert "'b*.txt', 'missing'" in message
    assert str(tmp_path) in message


def test_bytes_that_are_not_utf8_are_refused_with_file_line_and_offset(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"fine\nbad \xff here")
    message = refusal(files("a.txt"), tmp_path)
    assert f"{tmp_path / 'a.txt'}: line 2, byte 9: not UTF-8" in message
    assert "undecodable: skip" in message
    assert read(files("a.txt", undecodable="skip"), tmp_path) == ["undecodable"]


def test_a_separator_cuts_a_text_into_documents(tmp_path):
    (tmp_path / "a.txt").write_text("one<|endoftext|>two<|endoftext|>")
    assert read(files("a.txt", separator="<|endoftext|>"), tmp_path) == [b"one", b"two", "empty"]


def test_json_lines_are_cut_at_line_feeds_only(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", {"text": "a\u2028b\u0085c"}, {"text": "d"})
    assert read(files("a.jsonl", format="jsonl"), tmp_path) == ["a\u2028b\u0085c".encode(), b"d"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": ', "line 2: not a JSON record"),
        ("[1]", "line 2: a record must be an object, found a list"),
        ('{"body": "x", "id": 1}', "line 2: no column 'text'; there are 'body', 'id'"),
        ('{"text": 5}', "line 2: column 'text' must be text, found a number"),
        ('{"text": "\\ud800"}', "line 2: character 0 of 'text' is a lone surrogate"),
    ],
)
def test_a_bad_record_is_refused_with_file_and_line(tmp_path, line, reason):
    (tmp_path / "a.jsonl").write_text('{"text": "fine"}\n' + line + "\n")
    message = refusal(files("a.jsonl", format="jsonl"), tmp_path)
    assert f"{tmp_path / 'a.jsonl'}: {reason}" in message


def test_parquet_gives_its_column_and_nulls_count_as_empty(tmp_path):
    pq.write_table(pa.table({"body": ["one\r\n", None, "日本語"]}), tmp_path / "a.parquet")
    assert read(files(".", format="parquet", column="body"), tmp_path) == [b"one\n", "empty", "日本語".encode()]


def test_a_missing_or_numeric_parquet_column_is_refused_with_the_columns_there_are(tmp_path):
    pq.write_table(pa.table({"body": ["x"], "id": [1]}), tmp_path / "a.parquet")
    assert "no column 'text'; there are 'body', 'id'" in refusal(files(".", format="parquet"), tmp_path)
    assert "'id' must be text, found int64" in refusal(files(".", format="parquet", column="id"), tmp_path)


def test_a_file_that_is_not_parquet_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_text("not parquet at all")
    assert "not a readable Parquet file" in refusal(files(".", format="parquet"), tmp_path)


def test_python_source_is_the_running_library_without_installed_packages(tmp_path, monkeypatch):
    library = tmp_path / "lib"
    for name in ("os.py", "test/test_os.py", "site-packages/x.py", "__pycache__/y.py", "notes.txt"):
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_text(name)
    (library / "test/bad.py").write_bytes(b"# \xff")
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(library)})
    assert read(PythonSource(), tmp_path) == [b"os.py", "undecodable", b"test/test_os.py"]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(4, 20))
def test_pieces_are_whole_characters_and_together_the_document(text, limit):
    cut = pieces(text.encode(), limit=limit)
    assert "".join(piece.decode() for piece in cut) == text
    assert all(len(piece) <= limit for piece in cut)
