"""One text is the same documents, and the same tokens, however it is stored."""

from __future__ import annotations

import codecs
import gzip
import json
import unicodedata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from knockout.corpus.prepare import prepare
from knockout.corpus.preparing.workers import Here
from knockout.declare.corpus import Corpus

TEXTS = [
    "def f():\n\treturn 1\n",
    "Zeilen\n\n\nmit Abständen\u2028und\u0085Trennern\x0b\x0c",
    "日本語 \U0001f600 e\u0301 \u00e9 \ufb01",
    "NUL \x00 und <|endoftext|> als Text",
    "no end of line",
    " " * 70_000 + "long",
    *(f"story {number}\nonce upon a time\n" * 5 for number in range(300)),
]


def zst(raw: bytes) -> bytes:
    return pa.Codec("zstd").compress(raw, asbytes=True)


def lines(texts: list[str], *, ends: str = "\n", ascii_only: bool = False) -> bytes:
    return "".join(json.dumps({"n": 1, "text": text}, ensure_ascii=ascii_only) + ends for text in texts).encode()


def arrow(path: Path, table: pa.Table, *, is_file: bool) -> None:
    make = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as sink, make(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)


def as_text(folder: Path, encode) -> dict[str, object]:
    for number, text in enumerate(TEXTS):
        (folder / f"{number:03d}.txt").write_bytes(encode(text))
    return {"paths": ["*.txt"]}


def as_separated(folder: Path, encode) -> dict[str, object]:
    (folder / "all.txt").write_bytes(encode("<|sep|>\n".join(TEXTS)))
    return {"paths": ["all.txt"], "separator": "<|sep|>\n"}


def as_lines(name: str, content: bytes):
    def write(folder: Path) -> dict[str, object]:
        (folder / name).write_bytes(content)
        return {"paths": ["."], "format": "jsonl"}

    return write


def as_table(type_: pa.DataType, kind: str):
    def write(folder: Path) -> dict[str, object]:
        column = pa.array([text.encode() for text in TEXTS]).cast(pa.large_binary())
        plain = column.cast(type_.value_type if pa.types.is_dictionary(type_) else type_)
        table = pa.table(
            {"text": plain.dictionary_encode() if pa.types.is_dictionary(type_) else plain, "n": range(len(TEXTS))}
        )
        if kind == "parquet":
            pq.write_table(table, folder / "a.parquet", row_group_size=50)
        else:
            arrow(folder / "a.arrow", table, is_file=kind == "arrow file")
        return {"paths": ["."], "format": kind.split()[0]}

    return write


STRINGS = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int32(), pa.string()))
WAYS = {
    "LF": lambda folder: as_text(folder, str.encode),
    "CR LF": lambda folder: as_text(folder, lambda text: text.replace("\n", "\r\n").encode()),
    "CR": lambda folder: as_text(folder, lambda text: text.replace("\n", "\r").encode()),
    "BOM": lambda folder: as_text(folder, lambda text: codecs.BOM_UTF8 + text.encode()),
    "gz": lambda folder: as_text(folder, lambda text: gzip.compress(text.encode())),
    "separated": lambda folder: as_separated(folder, str.encode),
    "separated CR LF": lambda folder: as_separated(folder, lambda text: text.replace("\n", "\r\n").encode()),
    "separated zst": lambda folder: as_separated(folder, lambda text: zst(text.encode())),
    "JSON lines": as_lines("a.jsonl", lines(TEXTS)),
    "JSON lines CR LF": as_lines("a.jsonl", codecs.BOM_UTF8 + lines(TEXTS, ends="\r\n\n")),
    "JSON lines escaped": as_lines("a.jsonl", lines(TEXTS, ascii_only=True).removesuffix(b"\n")),
    "JSON lines of CR LF": as_lines("a.jsonl", lines([text.replace("\n", "\r\n") for text in TEXTS])),
    "JSON lines gz": as_lines("a.jsonl.gz", gzip.compress(lines(TEXTS[:9])) + gzip.compress(lines(TEXTS[9:]))),
    "JSON lines zst": as_lines("a.jsonl.zst", zst(lines(TEXTS[:9])) + zst(lines(TEXTS[9:]))),
    "JSON lines zst by content": as_lines("a.jsonl", zst(lines(TEXTS))),
    **{f"Parquet {kind}": as_table(kind, "parquet") for kind in STRINGS},
    **{f"Arrow {kind}": as_table(kind, "arrow file") for kind in STRINGS},
    "Arrow stream": as_table(pa.string(), "arrow stream"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("chunk_bytes", [2**24, 1000])
def test_one_text_is_the_same_documents_in_every_form(way, chunk_bytes, tmp_path, read):
    found = read(WAYS[way](tmp_path), base=tmp_path, chunk_bytes=chunk_bytes)
    assert found == [text.encode() for text in TEXTS]


def digest(folder: Path, plain: dict[str, object]) -> str:
    declared = {"corpus": "c", "source": {"kind": "files"} | plain, "tokenizer": {"kind": "bytes"}, "validation": 0.2}
    declared |= {"evaluation": {"tokens": 64, "segments": 2}}
    corpus = Corpus.model_validate_json(json.dumps(declared))
    return prepare(corpus, vocabulary=300, folder=folder / "prepared", base=folder, workers=Here()).manifest.digest


def test_one_text_is_the_same_corpus_in_every_form(tmp_path):
    digests = set()
    for way in ("CR LF", "JSON lines gz", "Parquet string", "Arrow stream"):
        folder = tmp_path / way
        folder.mkdir()
        digests.add(digest(folder, WAYS[way](folder)))
    assert len(digests) == 1


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_a_declared_unicode_form_is_applied_and_none_changes_nothing(form, tmp_path, read):
    for plain in (WAYS["LF"](tmp_path), WAYS["JSON lines"](tmp_path), as_table(pa.string(), "parquet")(tmp_path)):
        found = read(plain | {"unicode": form.lower()}, base=tmp_path)
        assert found == [unicodedata.normalize(form, text).encode() for text in TEXTS]


def test_nothing_and_null_are_counted_as_empty_in_every_form(tmp_path, read):
    (tmp_path / "a.txt").write_bytes(codecs.BOM_UTF8)
    (tmp_path / "a.jsonl").write_bytes(b'{"text": null}\n\n{"text": ""}\n')
    pq.write_table(pa.table({"text": pa.array([None, ""], pa.string())}), tmp_path / "a.parquet")
    assert read({"paths": ["*.txt"]}, base=tmp_path) == ["empty"]
    assert read({"paths": ["."], "format": "jsonl"}, base=tmp_path) == ["empty", "empty"]
    assert read({"paths": ["."], "format": "parquet"}, base=tmp_path) == ["empty", "empty"]
