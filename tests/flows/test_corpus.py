from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from knockout.corpus import prepare as preparing
from knockout.corpus.prepare import prepare
from knockout.corpus.preparing import chunks, ranges
from knockout.corpus.preparing.orders import do_order, write_order
from knockout.declare.corpus import Corpus

UNDER_PREFECT = """if True:
    import sys
    from functools import partial
    from pathlib import Path
    from knockout import project
    sys.path.insert(0, str(project.root() / "flows"))
    from corpus import CORES, TaskWorkers
    from prefect import flow
    from knockout.corpus import prepare as preparing
    from knockout.corpus.preparing import chunks, ranges
    from knockout.corpus.prepare import prepare
    from knockout.declare.corpus import Corpus

    declared, base = sys.argv[1:]
    preparing.chunks_of = partial(chunks.chunks_of, chunk_bytes=3000)
    ranges.MIN_RANGE_BYTES = 3000

    @flow(task_runner=CORES)
    def preparation():
        corpus = Corpus.model_validate_json(declared)
        made = prepare(corpus, vocabulary=300, folder=Path(base, "prefect"), base=Path(base), workers=TaskWorkers())
        return made.manifest.digest

    if __name__ == "__main__":
        print(preparation())
"""


def corpus_of(folder: Path) -> Corpus:
    words = [f"{letter}{number}" for number in range(50) for letter in "abcdef"]
    texts = (f"{number}: " + " ".join(words[number::7][: number % 23 + 9]) for number in range(240))
    lines = (json.dumps({"text": text}) for text in texts)
    (folder / "texts.jsonl").write_text("\n".join(lines))
    source = {"kind": "files", "paths": ["texts.jsonl"], "format": "jsonl"}
    plain = {"corpus": "texts", "source": source, "tokenizer": {"kind": "bpe"}, "validation": 0.3}
    return Corpus.model_validate_json(json.dumps(plain | {"evaluation": {"tokens": 64, "segments": 4}}))


def test_tasks_of_prefect_make_the_corpus_that_one_process_makes(tmp_path):
    corpus = corpus_of(tmp_path)
    plain = prepare(corpus, vocabulary=300, folder=tmp_path / "plain", base=tmp_path)
    environment = {
        **os.environ,
        "PREFECT_HOME": str(tmp_path / "home"),
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
        "PREFECT_LOGGING_LEVEL": "ERROR",
        "DO_NOT_TRACK": "1",
    }
    environment.pop("PREFECT_API_URL", None)
    command = [sys.executable, "-c", UNDER_PREFECT, corpus.model_dump_json(), str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert said.returncode == 0, said.stderr
    assert said.stdout.split()[-1] == plain.manifest.digest


class Ordering:
    """Writes each task to a file first, and does what the file says, as a flow run on another machine does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done = 0

    def map(self, function, tasks):
        path = self.folder / f"{function.__name__}-{self.done}.order"
        write_order(path, function=function, tasks=tasks)
        self.done += do_order(path)
        return map(function, tasks)

    def close(self) -> None:
        """Nothing was started."""


def test_tasks_that_were_written_to_a_file_make_the_same_corpus(tmp_path, monkeypatch):
    corpus = corpus_of(tmp_path)
    plain = prepare(corpus, vocabulary=300, folder=tmp_path / "plain", base=tmp_path)
    monkeypatch.setattr(preparing, "chunks_of", partial(chunks.chunks_of, chunk_bytes=3000))
    monkeypatch.setattr(ranges, "MIN_RANGE_BYTES", 3000)
    ordering = Ordering(tmp_path)
    made = prepare(corpus, vocabulary=300, folder=tmp_path / "ordered", base=tmp_path, workers=ordering)
    assert made.manifest.digest == plain.manifest.digest
    assert ordering.done > 10
    assert {path.name.split("-")[0] for path in tmp_path.glob("*.order")} == {"read", "count", "encode"}
