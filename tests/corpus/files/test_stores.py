from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from knockout.corpus.preparing.chunks import chunks_of, read_chunk
from knockout.declare.load import load_corpus
from knockout.errors import CorpusError

TEXTS = [f"document {number} " * 20 for number in range(200)]
DOCUMENTS = [text.encode() for text in TEXTS]
LINES = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()


def parquet(path: Path, **columns: object) -> bytes:
    pq.write_table(pa.table(columns or {"text": TEXTS}), path, row_group_size=50)
    return path.read_bytes()


@pytest.fixture
def bucket(s3, monkeypatch, tmp_path):
    """An empty bucket, for s3fs by the environment alone."""
    import fsspec

    for name, value in {
        "AWS_ENDPOINT_URL": s3,
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    files = fsspec.filesystem("s3", skip_instance_cache=True, use_listings_cache=False)
    name = tmp_path.name.replace("_", "-").lower()[:50].strip("-")
    files.mkdir(name)
    return files, name


def test_an_s3_store_gives_what_local_files_give_in_slices_too(bucket, read, tmp_path):
    files, name = bucket
    files.pipe(f"s3://{name}/deep/a.jsonl", LINES)
    files.pipe(f"s3://{name}/deep/b.jsonl.gz", gzip.compress(LINES))
    files.pipe(f"s3://{name}/deep/c.txt", b"no JSON lines")
    files.pipe(f"s3://{name}/d.parquet", parquet(tmp_path / "d.parquet"))
    assert read({"paths": [f"s3://{name}/deep"], "format": "jsonl"}) == DOCUMENTS * 2
    assert read({"paths": [f"s3://{name}/**/*.jsonl"], "format": "jsonl"}, chunk_bytes=5000) == DOCUMENTS
    assert read({"paths": [f"s3://{name}/d.parquet"], "format": "parquet"}, chunk_bytes=5000) == DOCUMENTS


def test_an_s3_fingerprint_needs_no_reading_and_follows_the_content(bucket, source, tmp_path):
    files, name = bucket
    declared = source({"paths": [f"s3://{name}/*"], "format": "jsonl"})
    files.pipe(f"s3://{name}/a.jsonl", LINES)
    first = chunks_of(declared, base=tmp_path)
    files.pipe(f"s3://{name}/a.jsonl", LINES)
    assert chunks_of(declared, base=tmp_path) == first
    files.pipe(f"s3://{name}/a.jsonl", LINES.replace(b"document 7", b"document 8"))
    assert chunks_of(declared, base=tmp_path) != first
    with pytest.raises(Exception, match="was changed while it was read"):
        list(read_chunk(declared, first[0], base=tmp_path))


def test_a_missing_bucket_or_key_is_told_by_its_address(bucket, refusal):
    _, name = bucket
    assert f"'s3://{name}/none.jsonl'" in refusal({"paths": [f"s3://{name}/none.jsonl"], "format": "jsonl"})
    assert "no-such-bucket" in refusal({"paths": ["s3://no-such-bucket/*.jsonl"], "format": "jsonl"})


def test_a_web_server_with_ranges_gives_slices(web, read, tmp_path):
    assert read({"paths": [web.put("a.jsonl", LINES)], "format": "jsonl"}, chunk_bytes=5000) == DOCUMENTS
    table = web.put("a.parquet", parquet(tmp_path / "a.parquet"))
    assert read({"paths": [table], "format": "parquet"}, chunk_bytes=5000) == DOCUMENTS
    assert any("bytes=" in line for line in web.asked)


def test_a_web_server_without_ranges_gives_text_whole_and_no_tables(web, read, refusal, tmp_path):
    web.gives_ranges = False
    assert read({"paths": [web.put("a.jsonl", LINES)], "format": "jsonl"}, chunk_bytes=5000) == DOCUMENTS
    assert read({"paths": [web.put("b.jsonl.gz", gzip.compress(LINES))], "format": "jsonl"}) == DOCUMENTS
    table = web.put("a.parquet", parquet(tmp_path / "a.parquet"))
    assert "download it first" in refusal({"paths": [table], "format": "parquet"})


def test_a_page_that_is_not_there_is_told_by_its_address(web, refusal):
    assert f"{web.url}/none.txt: cannot be read" in refusal({"paths": [f"{web.url}/none.txt"]})


def test_a_store_whose_package_is_missing_names_the_extra(refusal):
    assert "pip install 'knockout[gs]'" in refusal({"paths": ["gs://bucket/a.jsonl"], "format": "jsonl"})


HUB = """
import json, sys
from pathlib import Path
from pydantic import TypeAdapter
from knockout.corpus.preparing.chunks import chunks_of, read_chunk
from knockout.declare.corpus import Source

for plain in json.loads(sys.argv[1]):
    source = TypeAdapter(Source).validate_json(json.dumps(plain))
    chunks = chunks_of(source, base=Path("/"))
    found = [document for chunk in chunks for document in read_chunk(source, chunk, base=Path("/"))]
    print(json.dumps([document.decode() for document in found]))
"""


@pytest.fixture
def hub(web, read, monkeypatch):
    """Read sources with the web server for the hub: the documents of each, or its error."""
    import fsspec

    monkeypatch.setitem(fsspec.config.conf, "hf", {"endpoint": web.url})

    def answer(plain: dict[str, object]) -> list[str] | str:
        try:
            return [str(document, "utf-8") for document in read(plain)]
        except CorpusError as error:
            return str(error)

    return lambda *sources: [answer(plain) for plain in sources]


def put(web, path: Path, dataset: str, name: str, *texts: str, **columns: object) -> None:
    web.put(f"datasets/{dataset}/resolve/main/{name}", parquet(path / "x.parquet", text=list(texts), **columns))


CARD = """---
license: other
configs:
- config_name: small
  data_files:
  - split: train
    path: sample/small/*
  - split: test
    path: ["sample/test-*", "more/**/t*.parquet"]
- config_name: large
  data_files: data/*/*.parquet
---
# A data set
"""


def test_a_data_set_of_the_hub_is_read_as_its_card_says(web, hub, tmp_path):
    web.put("datasets/o/cards/resolve/main/README.md", CARD.encode())
    put(web, tmp_path, "o/cards", "sample/small/0.parquet", "a")
    put(web, tmp_path, "o/cards", "sample/small/1.parquet", "b")
    put(web, tmp_path, "o/cards", "sample/test-0.parquet", "c")
    put(web, tmp_path, "o/cards", "more/x/y/t.parquet", "d")
    put(web, tmp_path, "o/cards", "data/one/0.parquet", "e")
    put(web, tmp_path, "o/cards", "data/0.parquet", "f")
    plain = {"kind": "hugging_face", "dataset": "o/cards"}
    answers = hub(
        plain | {"config": "small"},
        plain | {"config": "small", "split": "test"},
        plain | {"config": "large"},
        plain,
        plain | {"config": "smal"},
        plain | {"config": "small", "split": "tests"},
        plain | {"dataset": "o/none"},
        {"kind": "files", "paths": ["hf://datasets/o/cards/sample/**/*.parquet"], "format": "parquet"},
    )
    assert answers[:3] == [["a", "b"], ["d", "c"], ["e"]]
    assert "several configurations: name one in `config`; there are small, large" in answers[3]
    assert "no configuration 'smal'; there are small, large; did you mean 'small'?" in answers[4]
    assert "has no split 'tests'; there are train, test; did you mean 'test'?" in answers[5]
    assert answers[6].startswith("hf://datasets/o/none@main: cannot be read")
    assert answers[7] == ["a", "b", "c"]


def test_a_data_set_without_a_card_is_read_by_the_names_of_its_files(web, hub, tmp_path):
    put(web, tmp_path, "o/plain", "data/train-00000-of-00002-2d5a.parquet", "a")
    put(web, tmp_path, "o/plain", "data/train-00001-of-00002-5852.parquet", "b")
    put(web, tmp_path, "o/plain", "data/validation-00000-of-00001-869c.parquet", "c")
    put(web, tmp_path, "o/folders", "en/train/0000.parquet", "d")
    put(web, tmp_path, "o/folders", "fr/train/0000.parquet", "e")
    plain = {"kind": "hugging_face", "dataset": "o/plain"}
    answers = hub(
        plain,
        plain | {"split": "validation"},
        plain | {"split": "test"},
        plain | {"dataset": "o/folders", "config": "fr"},
        plain | {"dataset": "o/folders", "config": "de"},
        plain | {"column": "body"},
    )
    assert answers[:2] == [["a", "b"], ["c"]]
    assert "no split 'test' among its Parquet files" in answers[2]
    assert answers[3] == ["e"]
    assert "no configuration 'de'; there are en, fr" in answers[4]
    assert "no column 'body'; there are 'text'" in answers[5]


TEXT = {"text": ["first", "second"]}
SCORES = {"language_score": [0.9, 0.8], "token_count": [3, 4], "score": [3.1, 2.6], "int_score": [3, 3]}
CONFIG = "- config_name: {}\n  data_files:\n  - split: train\n    path: {}\n"
SHIPPED = {
    "tinystories": ("roneneldan/TinyStories", "", "data/train-00000-of-00004-2d5a1467fff1081b.parquet", TEXT),
    "wikitext-103": (
        "Salesforce/wikitext",
        CONFIG.format("wikitext-2-raw-v1", "wikitext-2-raw-v1/train-*")
        + CONFIG.format("wikitext-103-raw-v1", "wikitext-103-raw-v1/train-*"),
        "wikitext-103-raw-v1/train-00000-of-00002.parquet",
        TEXT,
    ),
    "fineweb-edu": (
        "HuggingFaceFW/fineweb-edu",
        CONFIG.format("default", "data/*/*") + CONFIG.format("sample-10BT", "sample/10BT/*"),
        "sample/10BT/000_00000.parquet",
        TEXT | {name: ["a", "b"] for name in ("id", "dump", "url", "file_path", "language")} | SCORES,
    ),
    "openwebtext": (
        "Skylion007/openwebtext",
        CONFIG.format("plain_text", "plain_text/train-*"),
        "plain_text/train-00000-of-00080.parquet",
        TEXT,
    ),
    "chinese-wikipedia": (
        "wikimedia/wikipedia",
        CONFIG.format("20231101.en", "20231101.en/train-*") + CONFIG.format("20231101.zh", "20231101.zh/train-*"),
        "20231101.zh/train-00000-of-00006.parquet",
        {"id": ["1", "2"], "url": ["u", "v"], "title": ["t", "w"]} | TEXT,
    ),
}
"""For each shipped data set of the hub its name, its card's configurations, a file's name, and its columns."""


def test_shipped_data_sets_are_read_from_files_of_their_names_and_columns(web, tmp_path):
    sources = []
    for name, (dataset, configs, file, columns) in SHIPPED.items():
        web.put(
            f"datasets/{dataset}/resolve/main/README.md",
            f"---\nlicense: other\n{configs and 'configs:'}\n{configs}---\n".encode(),
        )
        web.put(f"datasets/{dataset}/resolve/main/notes.txt", b"no table")
        other = file.replace("train", "validation").replace("sample/10BT/", "data/CC-MAIN-2013-20/")
        for path, values in [(file, columns), (other, {"text": ["not this"]})]:
            web.put(f"datasets/{dataset}/resolve/main/{path}", parquet(tmp_path / "x.parquet", **values))
        corpus, _ = load_corpus(name)
        sources.append(corpus.source.model_dump(mode="json"))
    environment = {"HF_ENDPOINT": web.url, "HF_HOME": str(tmp_path / "hf"), "PATH": "/usr/bin"}
    command = [sys.executable, "-c", HUB, json.dumps(sources)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [["first", "second"]] * len(SHIPPED)


def test_a_hub_that_does_not_answer_is_told_by_the_data_sets_address(monkeypatch, refusal):
    import fsspec

    monkeypatch.setitem(fsspec.config.conf, "hf", {"endpoint": "http://127.0.0.1:9"})
    message = refusal({"kind": "hugging_face", "dataset": "o/name"})
    assert message.startswith("hf://datasets/o/name@main: cannot be read (ConnectError: ")
