"""How fast a corpus is prepared and read, beside what others do with the same text in the same run.

The invariant: every rate is of the same documents and the same merges, each in a process of its own that measures itself;
starting worker processes counts, importing libraries does not.

`python -m knockout.corpus.throughput PEER FILE TOKENIZER CORES` measures one of the others and prints its seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from knockout.corpus.encoding.bpe import TOKENIZER, BpeEncoder
from knockout.corpus.prepare import prepare
from knockout.corpus.preparing.chunks import chunks_of, read_chunk
from knockout.corpus.preparing.workers import usable_cores
from knockout.corpus.reading import Split, open_split
from knockout.declare.corpus import Corpus
from knockout.declare.generators import Generator
from knockout.errors import CorpusError

VOCABULARY = 4096
WINDOW_TOKENS = 1024
NUM_WINDOWS = 4096
ROUNDS = 5
PEERS = {
    "tiktoken": "tiktoken, one core",
    "tokenizers": "tokenizers' encode_batch_fast",
    "datasets": "datasets.map of batches with encode_batch_fast",
    "datasets-rows": "datasets.map of rows with encode",
}
"""What is measured beside, and how it is called."""


@dataclass(frozen=True)
class Throughput:
    """Rates of one run."""

    num_bytes: int
    cores: int
    prepared: float
    """Bytes a second of a whole preparation but for learning the merges, on all cores."""
    peers: dict[str, float]
    """Bytes a second of each of PEERS that is installed, on all cores where it does not say else."""
    windows: float
    """Bytes a second of random windows of WINDOW_TOKENS tokens, counted as they lie in the shard."""


def measure(corpus: Corpus, *, base: Path, num_bytes: int, peek: Callable[[Split], None]) -> Throughput:
    """Measure on `num_bytes` of a corpus' text; `peek` is shown the prepared training split.

    Raises:
        CorpusError: the corpus is generated, or its text too small.
    """
    if isinstance(corpus.source, Generator):
        raise CorpusError(f"corpus {corpus.corpus}: rates are measured on text; this one is {corpus.source.kind}")
    with tempfile.TemporaryDirectory(prefix="knockout-bench-") as name:
        folder = Path(name)
        size = _write(folder / "text.jsonl", _texts(corpus, base=base, num_bytes=num_bytes))
        seconds, made = _prepare(folder, size=size)
        split = open_split(made, split="train")
        windows = _windows(split)
        peek(split)
        there = [peer for peer in PEERS if find_spec(peer.partition("-")[0]) is not None]
        peers = {peer: size / _peer(peer, file=folder / "text.jsonl", tokenizer=made / TOKENIZER) for peer in there}
    return Throughput(size, usable_cores(), size / seconds, peers, windows)


def _texts(corpus: Corpus, *, base: Path, num_bytes: int) -> Iterator[str]:
    """A corpus' documents until they are `num_bytes`; where they are too few, again, each with a line that makes it new."""
    chunks = chunks_of(corpus.source, base=base)
    for turn in count():
        for chunk in chunks:
            for document in read_chunk(corpus.source, chunk, base=base):
                if isinstance(document, bytes):
                    yield f"{turn}\n{document.decode()}" if turn else document.decode()
                    num_bytes -= len(document)
                    if num_bytes <= 0:
                        return


def _write(path: Path, texts: Iterator[str]) -> int:
    size = 0
    with path.open("w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")
            size += len(text.encode())
    return size


def _prepare(folder: Path, *, size: int) -> tuple[float, Path]:
    """Seconds without those of learning merges, and the folder."""
    plain = {
        "corpus": "bench",
        "source": {"kind": "files", "paths": ["text.jsonl"], "format": "jsonl"},
        "tokenizer": {"kind": "bpe", "sample_bytes": max(1024, min(size // 4, 8_000_000))},
        "evaluation": {"tokens": 1024, "segments": 4},
    }
    learning: dict[float, float] = {}

    def progress(stage: str, fraction: float, num_bytes: int) -> None:
        if stage == "tokenizer":
            learning[fraction] = time.perf_counter()

    declared = Corpus.model_validate_json(json.dumps(plain))
    began = time.perf_counter()
    made = prepare(declared, vocabulary=VOCABULARY, folder=folder / "corpora", base=folder, progress=progress)
    return time.perf_counter() - began - (learning[1.0] - learning[0.0]), made.folder


def _windows(split: Split) -> float:
    """Bytes a second, the best of some rounds."""
    random = np.random.default_rng(0)
    starts = random.integers(0, split.num_tokens - WINDOW_TOKENS, (NUM_WINDOWS // 16, 16))
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for starts_B in starts:
            split.gather(starts_B, length=WINDOW_TOKENS)
        seconds.append(time.perf_counter() - began)
    return NUM_WINDOWS * WINDOW_TOKENS * split.shards[0].dtype.itemsize / min(seconds)


def _peer(peer: str, *, file: Path, tokenizer: Path) -> float:
    command = [sys.executable, "-m", "knockout.corpus.throughput", peer, str(file), str(tokenizer), str(usable_cores())]
    environment = {**os.environ, "HF_HOME": str(file.parent / "hf"), "HF_DATASETS_OFFLINE": "1"}
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return float(said.stdout.split()[-1])


def _encode_with_tiktoken(texts: list[str], *, tokenizer: Path, cores: int) -> Callable[[], object]:
    encoder = BpeEncoder(tokenizer, vocabulary=VOCABULARY)
    documents = [text.encode() for text in texts]
    return lambda: encoder.encode(documents)


def _encode_with_tokenizers(texts: list[str], *, tokenizer: Path, cores: int) -> Callable[[], object]:
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    from tokenizers import Tokenizer

    opened = Tokenizer.from_file(str(tokenizer))
    return lambda: opened.encode_batch_fast(texts, add_special_tokens=False)


def _map_with_datasets(texts: list[str], *, tokenizer: Path, cores: int, batched: bool) -> Callable[[], object]:
    import datasets
    from tokenizers import Tokenizer

    opened = Tokenizer.from_file(str(tokenizer))
    table = datasets.Dataset.from_dict({"text": texts})

    def encode_batch(batch: dict[str, Any]) -> dict[str, Any]:
        return {"ids": [one.ids for one in opened.encode_batch_fast(batch["text"], add_special_tokens=False)]}

    def encode_row(row: dict[str, Any]) -> dict[str, Any]:
        return {"ids": opened.encode(row["text"], add_special_tokens=False).ids}

    cache = str(tokenizer.parent.parent.parent / f"mapped-{batched}.arrow")
    settings = {"batched": batched, "remove_columns": ["text"], "num_proc": cores, "cache_file_name": cache}
    return lambda: table.map(encode_batch if batched else encode_row, **settings)


def _measure_peer() -> None:
    peer, file, tokenizer, cores = sys.argv[1:]
    texts = [json.loads(line)["text"] for line in Path(file).read_bytes().splitlines()]
    ways = {
        "tiktoken": _encode_with_tiktoken,
        "tokenizers": _encode_with_tokenizers,
        "datasets": partial(_map_with_datasets, batched=True),
        "datasets-rows": partial(_map_with_datasets, batched=False),
    }
    work = ways[peer](texts, tokenizer=Path(tokenizer), cores=int(cores))
    began = time.perf_counter()
    work()
    print(time.perf_counter() - began)


if __name__ == "__main__":
    _measure_peer()
