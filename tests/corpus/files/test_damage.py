"""What is damaged, malformed or of another type is refused by name and place, or counted where the declaration says so."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from knockout.corpus.manifest import Counts
from knockout.corpus.prepare import prepare
from knockout.corpus.preparing.workers import Here
from knockout.declare.corpus import Corpus

JSONL = {"paths": ["a.jsonl"], "format": "jsonl"}
GOOD = b'{"text": "good"}\n'
BAD = {
    "truncated": b'{"text": "go',
    "trailing": b'{"text": "good"} garbage',
    "no object": b'["text"]',
    "a number": b'{"text": 5}',
    "an object": b'{"text": {"a": 1}}',
    "twice": b'{"text": "a", "text": "b"}',
    "deep": b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a level too deep": b'{"text": "a", "n": ' + b"[" * 500 + b"]" * 500 + b"}",
    "objects too deep": b'{"text": "a", "n": ' + b'[{"a": ' * 400 + b"0" + b"}]" * 400 + b"}",
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("chunk_bytes", [2**24, 20])
def test_a_malformed_line_is_refused_by_its_number_or_counted(name, chunk_bytes, tmp_path, read, refusal):
    (tmp_path / "a.jsonl").write_bytes(GOOD * 3 + BAD[name] + b"\n" + GOOD)
    message = refusal(JSONL, base=tmp_path, chunk_bytes=chunk_bytes)
    assert message.startswith(f"{tmp_path / 'a.jsonl'}: line 4: ")
    assert "set `malformed: skip` to leave such lines out" in message
    assert len(message) < 400
    expected = [b"good"] * 3 + ["malformed", b"good"]
    found = read(JSONL | {"malformed": "skip"}, base=tmp_path, chunk_bytes=chunk_bytes)
    assert sorted(map(str, found)) == sorted(map(str, expected))


FINE = {
    "a number of many digits": b'{"text": "good", "n": ' + b"9" * 6000 + b"}",
    "as deep as may be": b'{"text": "good", "n": ' + b"[" * 499 + b"]" * 499 + b"}",
    "wide": b'{"text": "good", "n": [' + b", ".join([b"[{}]"] * 600) + b"]}",
    "brackets in text": json.dumps({"text": "good", "n": "[{" * 600}).encode(),
}


@pytest.mark.parametrize("name", FINE)
def test_json_is_json_whatever_the_interpreters_limits(name, tmp_path, read):
    (tmp_path / "a.jsonl").write_bytes(FINE[name] + b"\n")
    assert read(JSONL, base=tmp_path) == [b"good"]


def test_a_nest_that_is_too_deep_is_told_with_the_limit(tmp_path, refusal):
    for brackets in (500, 5000):
        (tmp_path / "a.jsonl").write_bytes(b'{"text": "a", "n": ' + b"[" * brackets + b"]" * brackets + b"}")
        assert "line 1: more than 500 lists and objects are nested in each other" in refusal(JSONL, base=tmp_path)


@pytest.mark.parametrize(
    "line", [b'{"text": "\\ud800"}', b'{"text": "\\udc00\\ud800 x"}', b'{"text": "\xff"}', b'{"t\xed\xa0\x80": 1}']
)
@pytest.mark.parametrize("chunk_bytes", [2**24, 20])
def test_a_lone_surrogate_and_bytes_that_are_not_utf8_are_told_from_malformed(line, chunk_bytes, tmp_path, read, refusal):
    (tmp_path / "a.jsonl").write_bytes(GOOD * 3 + line + b"\n")
    message = refusal(JSONL | {"malformed": "skip"}, base=tmp_path, chunk_bytes=chunk_bytes)
    assert f"{tmp_path / 'a.jsonl'}: line 4: " in message
    assert "set `undecodable: skip`" in message
    found = read(JSONL | {"undecodable": "skip"}, base=tmp_path, chunk_bytes=chunk_bytes)
    assert sorted(map(str, found)) == ["b'good'"] * 3 + ["undecodable"]


def test_a_missing_column_is_never_skipped_and_the_nearest_is_named(tmp_path, refusal):
    (tmp_path / "a.jsonl").write_bytes(GOOD + b'{"texts": "a", "id": 1}\n')
    policy = {"malformed": "skip", "undecodable": "skip"}
    message = refusal(JSONL | policy, base=tmp_path)
    assert message == f"{tmp_path / 'a.jsonl'}: line 2: no column 'text'; there are 'texts', 'id'; did you mean 'texts'?"


@pytest.mark.parametrize("chunk_bytes", [2**24, 16])
def test_invalid_bytes_in_a_separated_text_spoil_one_document(chunk_bytes, tmp_path, read, refusal):
    (tmp_path / "a.txt").write_bytes("één\r\n".encode() + b"two\r\nba\xe9d\r\n" + b"vier\r\n" * 20)
    plain = {"paths": ["a.txt"], "separator": "\n"}
    found = read(plain | {"undecodable": "skip"}, base=tmp_path, chunk_bytes=chunk_bytes)
    assert found == ["één".encode(), b"two", "undecodable", *[b"vier"] * 20, "empty"]
    assert f"{tmp_path / 'a.txt'}: line 3, byte 14: not UTF-8" in refusal(plain, base=tmp_path, chunk_bytes=chunk_bytes)


def test_the_place_of_an_invalid_byte_is_exact_far_into_a_file(tmp_path, refusal):
    text = "ä\n" * 400_000 + "ääx"
    raw = text.encode() + b"\xc3"
    (tmp_path / "a.txt").write_bytes(raw)
    assert f"line 400001, byte {len(raw) - 1}: not UTF-8" in refusal({"paths": ["a.txt"]}, base=tmp_path)
    (tmp_path / "a.txt").write_bytes(raw + b"(" + raw)
    assert f"line 400001, byte {len(raw) - 1}: not UTF-8" in refusal({"paths": ["a.txt"]}, base=tmp_path)


def compressed(name: str) -> bytes:
    raw = b"".join(json.dumps({"text": os.urandom(30).hex()}).encode() + b"\n" for _ in range(200))
    return gzip.compress(raw) if name == "gz" else pa.Codec("zstd").compress(raw, asbytes=True)


@pytest.mark.parametrize("name", ["gz", "zst"])
def test_compressed_text_that_is_cut_off_anywhere_is_refused_by_name(name, tmp_path, refusal):
    whole = compressed(name)
    path = tmp_path / f"a.jsonl.{name}"
    policies = {"malformed": "skip", "undecodable": "skip"}
    for length in [0, 1, 3, 4, 5, 11, *range(20, len(whole) - 8, 997), *range(len(whole) - 8, len(whole))]:
        path.write_bytes(whole[:length])
        assert str(path) in refusal({"paths": ["."], "format": "jsonl"} | policies, base=tmp_path), length


def test_garbage_after_gzip_and_a_name_that_lies_are_refused(tmp_path, refusal):
    (tmp_path / "a.jsonl.gz").write_bytes(compressed("gz") + b"garbage")
    assert "a.jsonl.gz: its .gz data is cut off or damaged" in refusal({"paths": ["."], "format": "jsonl"}, base=tmp_path)
    (tmp_path / "a.jsonl.gz").write_bytes(GOOD)
    assert "its name ends in .gz, its content is not compressed so" in refusal(
        {"paths": ["."], "format": "jsonl"}, base=tmp_path
    )


def tables(folder: Path, table: pa.Table) -> dict[str, Path]:
    pq.write_table(table, folder / "a.parquet", row_group_size=10)
    for name, make in (("file", pa.ipc.new_file), ("stream", pa.ipc.new_stream)):
        with pa.OSFile(str(folder / f"{name}.arrow"), "wb") as sink, make(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=10)
    return {name: folder / name for name in ("a.parquet", "file.arrow", "stream.arrow")}


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
def test_a_table_that_is_cut_off_anywhere_is_refused_by_name(name, tmp_path, refusal):
    path = tables(tmp_path, pa.table({"text": [f"row {number}" for number in range(50)]}))[name]
    whole = path.read_bytes()
    for length in [0, 1, 4, 8, *range(9, len(whole), 97), *range(len(whole) - 20, len(whole))]:
        path.write_bytes(whole[:length])
        assert str(path) in refusal({"paths": [name], "format": path.suffix[1:]}, base=tmp_path), length


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
def test_a_column_of_another_type_is_refused_with_its_type(name, tmp_path, refusal):
    table = pa.table({"body": [{"a": "x"}], "list": [["x"]], "id": [1], "ok": ["x"]})
    path = tables(tmp_path, table)[name]
    for column, kind in [("body", "struct<a: string>"), ("list", "list<"), ("id", "int64")]:
        message = refusal({"paths": [name], "format": path.suffix[1:], "column": column}, base=tmp_path)
        assert f"{path}: column '{column}' must be text, found {kind}" in message
    message = refusal({"paths": [name], "format": path.suffix[1:], "column": "bodies"}, base=tmp_path)
    assert "no column 'bodies'; there are 'body', 'list', 'id', 'ok'; did you mean 'body'?" in message
    assert "no column 'body.a'" in refusal({"paths": [name], "format": path.suffix[1:], "column": "body.a"}, base=tmp_path)


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
@pytest.mark.parametrize("chunk_bytes", [2**24, 1])
def test_invalid_bytes_in_a_table_are_told_by_their_row(name, chunk_bytes, tmp_path, read, refusal):
    values = [b"row"] * 34 + [b"ba\xffd", None, b"row"]
    path = tables(tmp_path, pa.table({"text": pa.array(values, pa.binary())}))[name]
    plain = {"paths": [name], "format": path.suffix[1:]}
    message = refusal(plain, base=tmp_path, chunk_bytes=chunk_bytes)
    assert f"{path}: row 35: byte 2 is not UTF-8 text" in message
    found = read(plain | {"undecodable": "skip"}, base=tmp_path, chunk_bytes=chunk_bytes)
    assert found == [b"row"] * 34 + ["undecodable", "empty", b"row"]


def test_a_flipped_byte_in_a_parquet_page_is_refused_where_it_has_checksums(tmp_path, refusal):
    table = pa.table({"text": [f"row {number} of the table" for number in range(50)]})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"row 23 of", b"row 24 of", 1))
    assert str(path) in refusal({"paths": ["."], "format": "parquet"}, base=tmp_path)


def test_all_that_makes_no_row_is_counted_in_the_manifest(tmp_path):
    texts = [json.dumps({"text": f"document {number}", "keep": number % 10 > 0}).encode() for number in range(300)]
    bad = [
        b'{"text": "a", "keep": true} x',
        b'{"text": 1, "keep": true}',
        b'{"text": "\\udc00", "keep": true}',
        b'{"text": null, "keep": true}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([*texts, *bad]))
    policies = {"malformed": "skip", "undecodable": "skip", "where": {"column": "keep", "is": "equals", "value": True}}
    plain = {
        "corpus": "c",
        "source": {"kind": "files"} | JSONL | policies,
        "tokenizer": {"kind": "bytes"},
        "validation": 0.2,
    }
    corpus = Corpus.model_validate_json(json.dumps(plain | {"evaluation": {"tokens": 64, "segments": 2}}))
    manifest = prepare(corpus, vocabulary=257, folder=tmp_path / "prepared", base=tmp_path, workers=Here()).manifest
    assert manifest.counts == Counts(empty=1, undecodable=1, malformed=2, filtered=30, duplicates=0)
    assert manifest.splits.train.documents + manifest.splits.validation.documents == 270


def test_a_broken_link_is_told_where_it_is_named_or_nothing_else_is_there(tmp_path, refusal):
    (tmp_path / "a.txt").symlink_to(tmp_path / "nowhere")
    assert f"{tmp_path / 'a.txt'}: cannot be read (No such file" in refusal({"paths": ["a.txt"]}, base=tmp_path)
    for path in (".", "*.txt"):
        assert f"{tmp_path / 'a.txt'} is a link to nothing" in refusal({"paths": [path]}, base=tmp_path)


def test_a_frame_to_be_skipped_counts_as_zstandard_by_name_and_as_text_without(tmp_path, read):
    frame = b"P*M\x18\x04\x00\x00\x00abcd"
    (tmp_path / "a.txt.zst").write_bytes(frame + pa.Codec("zstd").compress(b"text", asbytes=True))
    (tmp_path / "b.txt").write_bytes(frame)
    assert read({"paths": ["."]}, base=tmp_path) == [b"text", frame]
