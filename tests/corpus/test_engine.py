from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knockout.corpus import prepare as preparing
from knockout.corpus import shards
from knockout.corpus.prepare import Prepared, find, prepare
from knockout.corpus.preparing import chunks, engine, merging, parts, ranges, runs
from knockout.corpus.preparing.workers import Here, Processes
from knockout.corpus.reading import open_split
from knockout.declare.corpus import Corpus
from knockout.errors import CorpusError

PROGRAM = """
import os, signal, sys
from functools import partial
from pathlib import Path
from knockout.corpus import prepare as preparing
from knockout.corpus.preparing import chunks, ranges
from knockout.corpus.prepare import prepare
from knockout.corpus.preparing.workers import Processes
from knockout.declare.corpus import Corpus

declared, base, last, group = sys.argv[1:]
preparing.chunks_of = partial(chunks.chunks_of, chunk_bytes=3000)
ranges.MIN_RANGE_BYTES = 3000
left = int(last)

def progress(name, fraction, num_bytes):
    global left
    left -= 1
    if left == 0:
        (os.killpg if group == "all" else os.kill)(os.getpid(), signal.SIGKILL)

workers = Processes(2)
done = prepare(Corpus.model_validate_json(declared), vocabulary=300, folder=Path(base, "corpora"), base=Path(base),
               progress=progress, workers=workers)
workers.close()
print("reused" if done.reused else "built", done.manifest.digest, flush=True)
"""


def corpus_of(folder: Path, texts: list[str], *, files: int = 1, tokenizer: str = "bpe", **settings: object) -> Corpus:
    """A corpus of JSON lines, dealt to some files."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(files):
        lines = (json.dumps({"text": text}) + "\n" for text in texts[file::files])
        (folder / f"{file}.jsonl").write_text("".join(lines))
    plain = {
        "corpus": "texts",
        "source": {"kind": "files", "paths": ["*.jsonl"], "format": "jsonl"},
        "tokenizer": {"kind": tokenizer},
        "validation": 0.3,
        "evaluation": {"tokens": 64, "segments": 4},
    }
    return Corpus.model_validate_json(json.dumps(plain | settings))


def long_texts(count: int, *, seed: int = 0) -> list[str]:
    """Some hundred bytes each; one in ten stands there two to four times."""
    draw = random.Random(seed)
    words = [f"{draw.choice('abcdefghij')}{number}" for number in range(200)]
    texts = [f"{number}: " + " ".join(draw.choices(words, k=draw.randrange(5, 80))) for number in range(count)]
    return texts + [text for text in texts[::10] for _ in range(draw.randrange(1, 4))]


@pytest.fixture
def fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks and ranges of a few documents."""
    monkeypatch.setattr(preparing, "chunks_of", partial(chunks.chunks_of, chunk_bytes=3000))
    monkeypatch.setattr(ranges, "MIN_RANGE_BYTES", 3000)
    monkeypatch.setattr(ranges, "STEP_BYTES", 1000)
    monkeypatch.setattr(parts, "COPIES_AT_A_TIME", 3)
    monkeypatch.setattr(engine, "INDEX_BYTES", 2000)
    monkeypatch.setattr(runs, "RUN_BYTES", 4000)


def prepare_in(folder: Path, corpus: Corpus, **settings: object) -> Prepared:
    return prepare(corpus, vocabulary=300, folder=folder / "corpora", base=folder, **{"workers": Here()} | settings)


def in_declared_order(texts: list[str], *, validation: float) -> dict[str, list[str]]:
    """Both sides by the rule itself: a document's side by its hash, its place by the hash, or a hash of hash and copy."""
    sides: dict[str, list[tuple[bytes, str]]] = {"train": [], "validation": []}
    for text, times in Counter(text for text in texts if text).items():
        content = hashlib.sha256(text.encode()).digest()
        side = "validation" if int.from_bytes(content, "big") / 2**256 < validation else "train"
        copies = [hashlib.sha256(content + copy.to_bytes(8, "big")).digest() for copy in range(1, times)]
        sides[side] += [(place, text) for place in [content, *copies]]
    return {side: [text for _, text in sorted(found)] for side, found in sides.items()}


FILLER = [f"document {number} with some words" for number in range(40)]


@pytest.mark.usefixtures("fine")
@settings(max_examples=12, deadline=None)
@given(
    texts=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\ufeff"), max_size=200), max_size=30
    ),
    copies=st.lists(st.integers(0, 5), max_size=30),
    chunk_bytes=st.integers(200, 8000),
)
def test_shards_hold_each_document_once_in_the_order_of_its_hash_on_the_side_of_its_hash(
    read_back, texts, copies, chunk_bytes
):
    texts = FILLER + texts + [text for text, times in zip(texts, copies, strict=False) for _ in range(times)]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparing, "chunks_of", partial(chunks.chunks_of, chunk_bytes=chunk_bytes))
        prepared = prepare_in(Path(folder), corpus_of(Path(folder), texts, tokenizer="bytes"))
        found = {split: read_back(prepared, split) for split in ("train", "validation")}
    assert found == in_declared_order(texts, validation=0.3)
    assert prepared.manifest.counts.duplicates == sum(map(bool, texts)) - len({text for text in texts if text})


def test_the_digest_is_the_same_for_every_number_of_workers_files_chunks_and_ranges(tmp_path, request):
    texts = long_texts(120)
    plain = prepare_in(tmp_path / "plain", corpus_of(tmp_path / "plain", texts))
    request.getfixturevalue("fine")
    made: dict[int, Prepared] = {}
    for count in (1, 2, 3):
        folder = tmp_path / str(count)
        corpus = corpus_of(folder, texts[count:] + texts[:count], files=count)
        workers = Processes(count) if count > 1 else Here()
        made[count] = prepare_in(folder, corpus, workers=workers)
        workers.close()
    assert {each.manifest.digest for each in made.values()} == {plain.manifest.digest}
    assert len(plain.manifest.splits.train.shards) == 1
    assert len(made[1].manifest.splits.train.shards) > 5
    assert {each.manifest.splits for each in made.values()} == {made[1].manifest.splits}


def killed(corpus: Corpus, folder: Path, *, last: int, group: str = "all") -> bool:
    """Whether a preparation was killed with all its workers at its `last` word of progress, and not done before."""
    command = [sys.executable, "-c", PROGRAM, corpus.model_dump_json(), str(folder), str(last), group]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, start_new_session=True, check=False)
    assert process.returncode in (0, -signal.SIGKILL)
    return process.returncode != 0


def finished(folder: Path) -> dict[str, int]:
    """Parts whose result is written, and the file that it is."""
    return {path.name: path.stat().st_ino for path in folder.glob("corpora/.*.partial/work/*-*.json")}


@pytest.mark.parametrize("group", ["all", "owner"])
def test_a_preparation_killed_again_and_again_goes_on_and_ends_with_the_same_digest(tmp_path, group, fine, monkeypatch):
    texts, draw = long_texts(150), random.Random(group)
    fresh = prepare_in(tmp_path / "fresh", corpus_of(tmp_path / "fresh", texts))
    corpus = corpus_of(tmp_path / "killed", texts)
    before: dict[str, int] = {}
    for _ in range(4):
        assert killed(corpus, tmp_path / "killed", last=draw.randrange(2, 40), group=group)
        now = finished(tmp_path / "killed")
        assert before.items() <= now.items()
        assert find(corpus, vocabulary=300, folder=tmp_path / "killed/corpora", base=tmp_path / "killed") is None
        before = now
    done: list[str] = []
    monkeypatch.setattr(parts, "once", partial(counting, parts.once, done=done))
    again = prepare_in(tmp_path / "killed", corpus)
    assert (again.reused, again.manifest) == (False, fresh.manifest)
    assert len(before) > 10
    assert set(done).isdisjoint(before)
    assert [path for path in (tmp_path / "killed/corpora").iterdir() if path.is_dir()] == [again.folder]
    assert {path.name for path in again.folder.iterdir()} == {path.name for path in fresh.folder.iterdir()}


def counting(once, path: Path, work, *, done: list[str], result: type):
    def noted():
        done.append(path.name)
        return work()

    return once(path, noted, result=result)


def test_six_processes_at_once_share_one_preparation(tmp_path):
    corpus = corpus_of(tmp_path, long_texts(60))
    command = [sys.executable, "-c", PROGRAM, corpus.model_dump_json(), str(tmp_path), "0", ""]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    said = [process.communicate()[0].split() for process in started]
    assert sorted(verdict for verdict, _ in said) == ["built", *["reused"] * 5]
    assert len({digest for _, digest in said}) == 1


def test_nothing_changed_is_known_without_reading_a_document(tmp_path, monkeypatch):
    corpus = corpus_of(tmp_path, long_texts(60))
    first = prepare_in(tmp_path, corpus)
    (tmp_path / "0.jsonl").rename(tmp_path / "renamed.jsonl")
    monkeypatch.setattr(parts, "read_chunk", lambda *_, **__: pytest.fail("a document was read"))
    again = prepare_in(tmp_path, corpus)
    assert (again.reused, again.manifest) == (True, first.manifest)


def test_what_is_read_already_stays_as_it_is_while_the_corpus_changes_and_is_mended(tmp_path):
    texts = long_texts(60)
    corpus = corpus_of(tmp_path, texts)
    first = prepare_in(tmp_path, corpus)
    split = open_split(first.folder, split="train")
    before = split.gather(np.array([0]), length=split.num_tokens)
    changed = prepare_in(tmp_path, corpus_of(tmp_path, [*texts, "more"]))
    assert changed.folder != first.folder
    corpus_of(tmp_path, texts)
    (first.folder / "validation-00000.arrow").unlink()
    assert not prepare_in(tmp_path, corpus).reused
    np.testing.assert_array_equal(split.gather(np.array([0]), length=split.num_tokens), before)


@pytest.mark.usefixtures("fine")
def test_a_run_that_was_damaged_while_its_documents_were_encoded_is_named(tmp_path, monkeypatch):
    def damaged(pile: runs.Pile, path: Path) -> None:
        save(pile, path)
        if path.name != parts.PILE:
            return
        content = bytearray(Path(pile.runs[0].path).read_bytes())
        content[10] ^= 1
        Path(pile.runs[0].path).chmod(0o644)
        Path(pile.runs[0].path).write_bytes(content)

    save = runs.Pile.save
    monkeypatch.setattr(runs.Pile, "save", damaged)
    with pytest.raises(CorpusError, match=r"\.run: damaged at byte \d+; prepare the corpus again"):
        prepare_in(tmp_path, corpus_of(tmp_path, long_texts(60)))


@pytest.mark.usefixtures("fine")
def test_a_document_larger_than_chunk_range_and_shard_comes_back_whole(tmp_path, monkeypatch, read_back):
    monkeypatch.setattr(shards, "MAX_TOKENS", 5000)
    texts = [*FILLER, "long " * 4000, "longer " * 5000]
    prepared = prepare_in(tmp_path, corpus_of(tmp_path, texts, tokenizer="bytes"))
    found = read_back(prepared, "train") + read_back(prepared, "validation")
    assert Counter(found) == Counter(texts)
    assert max(shard.tokens for side in prepared.manifest.splits for shard in side[1].shards) == 5000


def test_many_runs_are_merged_and_removed_and_give_the_same_corpus(tmp_path, monkeypatch, fine):
    def save_none(pile: runs.Pile, path: Path) -> None:
        save(pile, path)
        left.append(len(list(path.parent.glob("*.run"))))

    texts, left, save = long_texts(150), [], runs.Pile.save
    plain = prepare_in(tmp_path / "plain", corpus_of(tmp_path / "plain", texts))
    monkeypatch.setattr(merging, "MAX_RUNS", 3)
    monkeypatch.setattr(merging, "MIN_GROUP", 4)
    monkeypatch.setattr(merging, "STEP_BYTES", 5000)
    monkeypatch.setattr(runs.Pile, "save", save_none)
    merged = prepare_in(tmp_path / "merged", corpus_of(tmp_path / "merged", texts))
    assert merged.manifest == plain.manifest
    assert left == [3, 3]


def test_a_worker_that_is_killed_is_told_and_what_was_done_is_kept(tmp_path, fine):
    def killing(_: str, fraction: float, __: int) -> None:
        if fraction > 0.5 and workers._started:
            os.kill(workers._started[0].pid, signal.SIGKILL)

    corpus, workers = corpus_of(tmp_path, long_texts(100)), Processes(2)
    with pytest.raises(Exception, match="ended by signal 9, for lack of memory perhaps; prepare it again"):
        prepare_in(tmp_path, corpus, workers=workers, progress=killing)
    workers.close()
    assert finished(tmp_path)
    assert prepare_in(tmp_path, corpus).manifest.splits.train.documents


def test_an_error_in_a_worker_is_the_one_that_is_raised(tmp_path, fine):
    corpus = corpus_of(tmp_path, long_texts(60))
    with (tmp_path / "0.jsonl").open("a") as file:
        file.write('{"text": 5}\n')
    workers = Processes(2)
    with pytest.raises(CorpusError, match=r"0\.jsonl: line \d+: column 'text' must be text, found a number"):
        prepare_in(tmp_path, corpus, workers=workers)
    workers.close()
    assert not list((tmp_path / "corpora").glob(".*.partial"))


@pytest.fixture
def two_workers() -> Iterator[Processes]:
    workers = Processes(2)
    yield workers
    workers.close()


def test_results_come_in_the_order_of_the_tasks(two_workers):
    assert list(two_workers.map(len, [[0] * size for size in range(50)])) == list(range(50))


def test_ranges_cover_all_places_once_and_weigh_little():
    sizes = [random.Random(bucket).randrange(0, 5000) for bucket in range(ranges.NUM_BUCKETS)]
    found = ranges.cut(sizes, at_most=2000)
    assert [found[0].low, *(part.high for part in found)] == [*(part.low for part in found), runs.HASHES]
    assert max(part.num_bytes for part in found) <= 2000
    steps = ranges.Range(5, 2**64, 10 * ranges.STEP_BYTES + 1).steps()
    assert len(steps) == 11
    assert [5, *(high for _, high in steps)] == [*(low for low, _ in steps), 2**64]
