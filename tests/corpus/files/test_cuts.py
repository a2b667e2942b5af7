"""A file cut into parts gives each of its records once, wherever it is cut."""

from __future__ import annotations

import json
import os
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knockout.corpus.preparing.chunks import chunks_of, read_chunk
from knockout.errors import CorpusError

SMALL = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SMALL
@given(
    st.lists(st.text(st.sampled_from('a"\\\n\r\u2028\u0085é😀'), max_size=12), max_size=12),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
    st.booleans(),
    st.integers(1, 60),
)
def test_json_lines_are_cut_between_records(tmp_path, read, texts, ends, is_ended, chunk_bytes):
    lines = ends.join(json.dumps({"text": text}, ensure_ascii=False) for text in texts) + ends * is_ended
    (tmp_path / "a.jsonl").write_bytes(lines.encode())
    expected = [text.replace("\r\n", "\n").replace("\r", "\n").encode() or "empty" for text in texts]
    assert read({"paths": ["a.jsonl"], "format": "jsonl"}, base=tmp_path, chunk_bytes=chunk_bytes) == expected


@SMALL
@given(
    st.text(st.sampled_from("ab\n\r"), max_size=60),
    st.sampled_from(["\n", "\n\n", "\n\n\n", "a", "aa", "aba", "a\na", "b\n"]),
    st.integers(1, 30),
)
def test_texts_are_cut_where_the_whole_is_split(tmp_path, read, text, separator, chunk_bytes):
    (tmp_path / "a.txt").write_bytes(text.encode())
    expected = text.replace("\r\n", "\n").replace("\r", "\n").split(separator)
    found = read({"paths": ["a.txt"], "separator": separator}, base=tmp_path, chunk_bytes=chunk_bytes)
    assert found == [piece.encode() or "empty" for piece in expected]


@pytest.mark.parametrize("separator", ["\n\n", "<|endoftext|>", "日本"])
def test_cuts_are_found_beyond_the_window_that_is_searched(tmp_path, read, separator):
    texts = [f"{number} " + "x" * size for number, size in enumerate([10, 200_000, 5, 65_536, 65_530, 1, 300_000] * 3)]
    (tmp_path / "a.txt").write_text(separator.join(texts), newline="")
    found = read({"paths": ["a.txt"], "separator": separator}, base=tmp_path, chunk_bytes=70_000)
    assert found == [text.encode() for text in texts]


def test_a_large_file_is_cut_and_small_ones_are_read_together(tmp_path, source):
    (tmp_path / "large.jsonl").write_bytes(b'{"text": "0123456789"}\n' * 1000)
    for number in range(100):
        (tmp_path / f"small-{number}.jsonl").write_bytes(b'{"text": "x"}\n')
    declared = source({"paths": ["."], "format": "jsonl"})
    chunks = chunks_of(declared, base=tmp_path, chunk_bytes=4000)
    sizes = [sum(part.last - part.first for part in chunk.parts) for chunk in chunks]
    assert sum(sizes) == 23_000 + 1400
    assert max(sizes) <= 4000 + 23
    assert len(chunks) <= 24_400 / 4000 + 2


def test_ten_thousand_files_are_planned_in_seconds_as_a_few_chunks(tmp_path, source):
    for number in range(10_000):
        (tmp_path / str(number)).write_bytes(b"%d\n" % number * 200)
    declared = source({"paths": ["."]})
    start = time.process_time()
    chunks = chunks_of(declared, base=tmp_path)
    assert time.process_time() - start < 20
    assert len(chunks) == 1
    assert sum(1 for _ in read_chunk(declared, chunks[0], base=tmp_path)) == 10_000


@pytest.mark.parametrize("groups", [1, 7, 50])
def test_tables_are_cut_between_row_groups_and_batches(tmp_path, source, read, groups):
    table = pa.table({"text": [f"row {number}" for number in range(101)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=-(-101 // groups))
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=-(-101 // groups))
    for form in ("parquet", "arrow"):
        plain = {"paths": ["."], "format": form}
        assert read(plain, base=tmp_path, chunk_bytes=1) == [text.encode() for text in table["text"].to_pylist()]
        assert len(chunks_of(source(plain), base=tmp_path, chunk_bytes=1)) == -(-101 // -(-101 // groups))
        assert len(chunks_of(source(plain), base=tmp_path)) == 1


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.parquet"])
def test_a_changed_byte_is_seen_whatever_the_files_size_and_times(tmp_path, source, name):
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.table({"text": ["one", "two"]}), path, compression="none", use_dictionary=False)
    else:
        path.write_bytes(b'{"text": "one"}\n{"text": "two"}\n')
    form = {"a.txt": "text"}.get(name, path.suffix[1:])
    declared = source({"paths": [name], "format": form})
    before = chunks_of(declared, base=tmp_path)
    status = path.stat()
    path.write_bytes(path.read_bytes().replace(b"two", b"twa"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    assert chunks_of(declared, base=tmp_path) != before
    with pytest.raises(CorpusError, match=r"changed while it was read|checksum"):
        list(read_chunk(declared, before[0], base=tmp_path))


def test_plans_do_not_depend_on_times_or_on_the_folder(tmp_path, source):
    plans = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        for name in "ba" if folder == "one" else "ab":
            (tmp_path / folder / f"{name}.jsonl").write_bytes(b'{"text": "%s"}\n' % name.encode() * 300)
        chunks = chunks_of(source({"paths": ["."], "format": "jsonl"}), base=tmp_path / folder, chunk_bytes=1000)
        plans.append([[(part.first, part.last, part.sha256) for part in chunk.parts] for chunk in chunks])
    assert plans[0] == plans[1]


def test_a_plan_is_read_where_the_folder_was_moved_to(tmp_path, source):
    (tmp_path / "here" / "text").mkdir(parents=True)
    (tmp_path / "here" / "text" / "a.txt").write_text("moved")
    (tmp_path / "beside.txt").write_text("left")
    declared = source({"paths": ["text", str(tmp_path / "beside.txt")]})
    chunks = chunks_of(declared, base=tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    assert sorted(map(str, read_chunk(declared, chunks[0], base=tmp_path / "there"))) == ["b'left'", "b'moved'"]
