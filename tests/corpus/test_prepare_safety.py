from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from knockout.corpus.manifest import read_manifest
from knockout.corpus.prepare import find, prepare
from knockout.corpus.reading import open_split
from knockout.corpus.shards import write_shard
from knockout.errors import CorpusError, WorkspaceError

PROGRAM = """
import os, signal, sys
from pathlib import Path
from knockout.corpus.prepare import prepare
from knockout.declare.corpus import Corpus

folder, mode, stage = sys.argv[2:]
seen = set()

def progress(name, fraction, num_bytes):
    if name not in seen:
        seen.add(name)
        print(name, flush=True)
        if name == stage:
            os.kill(os.getpid(), signal.SIGKILL) if mode == "kill" else sys.stdin.readline()

corpus = Corpus.model_validate_json(sys.argv[1])
done = prepare(corpus, vocabulary=300, folder=Path(folder), base=Path(folder), progress=progress)
print("reused" if done.reused else "built", done.manifest.digest, flush=True)
"""


def start(corpus, folder: Path, *, mode: str, stage: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, corpus.model_dump_json(), str(folder), mode, stage]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("stage", ["tokenizer", "encoding train", "floors"])
def test_a_killed_preparation_is_never_read_and_the_next_gives_the_same_digest(declare, tmp_path, stage):
    with start(declare(), tmp_path / "killed", mode="kill", stage=stage) as process:
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert [path.suffix for path in (tmp_path / "killed").iterdir() if path.is_dir()] == [".partial"]
    again = prepare(declare(), vocabulary=300, folder=tmp_path / "killed", base=tmp_path)
    fresh = prepare(declare(), vocabulary=300, folder=tmp_path / "fresh", base=tmp_path)
    assert not again.reused
    assert again.manifest == fresh.manifest
    assert [path for path in (tmp_path / "killed").iterdir() if path.is_dir()] == [again.folder]


def test_what_a_kill_left_of_another_corpus_is_left_to_be_gone_on_with(declare, tmp_path):
    abandoned = tmp_path / ".other-300-0123456789abcdef.partial"
    abandoned.mkdir()
    prepared = prepare(declare(), vocabulary=300, folder=tmp_path, base=tmp_path)
    assert {path for path in tmp_path.iterdir() if path.is_dir()} == {prepared.folder, abandoned}


def test_two_processes_that_prepare_the_same_corpus_share_the_work(declare, tmp_path):
    with start(declare(), tmp_path, mode="hold", stage="tokenizer") as first:
        assert first.stdin
        assert first.stdout
        while first.stdout.readline() != "tokenizer\n":
            assert first.poll() is None
        with start(declare(), tmp_path, mode="hold", stage="nothing") as second:
            assert second.stdout
            while second.stdout.readline() != "waiting for another process\n":
                assert second.poll() is None
            first.stdin.write("go\n")
            first.stdin.flush()
            verdict, digest = second.stdout.readline().split()
        last = first.stdout.read().splitlines()[-1]
    assert (verdict, last) == ("reused", f"built {digest}")


def test_preparing_again_reuses_what_is_there(declare, tmp_path):
    first = prepare(declare(), vocabulary=300, folder=tmp_path, base=tmp_path)
    second = prepare(declare(), vocabulary=300, folder=tmp_path, base=tmp_path)
    assert (first.reused, second.reused) == (False, True)
    assert (first.manifest, first.folder) == (second.manifest, second.folder)


def test_a_byte_changed_under_the_same_name_size_and_time_is_seen(declare, tmp_path):
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text(f"the text of document {number} is here\n")
    corpus = declare(source={"kind": "files", "paths": ["*.txt"]}, evaluation={"tokens": 64, "segments": 4})
    before = prepare(corpus, vocabulary=260, folder=tmp_path / "corpora", base=tmp_path)
    path, stat = tmp_path / "7.txt", (tmp_path / "7.txt").stat()
    path.write_text("The text of document 7 is here\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    after = prepare(corpus, vocabulary=260, folder=tmp_path / "corpora", base=tmp_path)
    assert not after.reused
    assert after.manifest.digest != before.manifest.digest


def cut_short(path: Path) -> None:
    content = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content[: len(content) // 2])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "said"), [(cut_short, "damaged"), (flip_a_bit, "damaged"), (Path.unlink, "No such file")]
)
def test_a_damaged_shard_is_refused_by_name_and_built_again(declare, small, tmp_path, damage, said):
    folder = tmp_path / small.folder.name
    shutil.copytree(small.folder, folder)
    damage(folder / "train-00000.arrow")
    with pytest.raises(CorpusError, match=rf"train-00000\.arrow: .*{said}"):
        open_split(folder, split="train")
    rebuilt = prepare(declare(), vocabulary=512, folder=tmp_path, base=tmp_path)
    assert (rebuilt.folder, rebuilt.reused, rebuilt.manifest) == (folder, False, small.manifest)
    assert open_split(folder, split="train").num_tokens == small.manifest.splits.train.tokens


def test_a_shard_cut_short_at_any_place_is_refused(small, tmp_path):
    folder = tmp_path / small.folder.name
    shutil.copytree(small.folder, folder)
    path = folder / "validation-00000.arrow"
    content = path.read_bytes()
    path.chmod(0o644)
    edges = [at for at in range(len(content)) if content[at : at + 4] == b"\xff\xff\xff\xff"]  # where Arrow's messages begin
    assert len(edges) >= 2
    for cut in sorted({0, 1, 8, *edges, *range(0, len(content), 4001), len(content) - 10, len(content) - 1}):
        path.write_bytes(content[:cut])
        with pytest.raises(CorpusError, match=rf"validation-00000\.arrow: damaged: its {cut:,} bytes"):
            open_split(folder, split="validation")
    path.write_bytes(content)
    assert open_split(folder, split="validation").num_tokens == small.manifest.splits.validation.tokens


def test_a_shard_with_the_wrong_number_of_tokens_is_refused(small, tmp_path):
    tokens = open_split(small.folder, split="validation").shards[0]
    entry = write_shard(tmp_path / "validation-00000.arrow", tokens_N=tokens[:-1])
    text = (small.folder / "manifest.json").read_text()
    known = small.manifest.splits.validation.shards[0].sha256
    said = json.loads(text.replace(known, entry.sha256)) | {"checksum": None}
    (tmp_path / "manifest.json").write_text(json.dumps(said))
    with pytest.raises(CorpusError, match=f"holds {len(tokens) - 1:,} tokens, its manifest says {len(tokens):,}"):
        open_split(tmp_path, split="validation")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"end_of_text":511', '"end_of_text":510', "wrong digest"),
        ('"documents":', '"documents":1', "wrong checksum"),
        ('"bigram":', '"bigram":1', "wrong checksum"),
        ('"format":1', '"format":0', "has format 0, this knockout reads 1"),
        ('"vocabulary"', '"vocabular"', "vocabulary: Field required"),
    ],
)
def test_a_manifest_that_was_changed_is_refused(small, tmp_path, old, new, said):
    text = (small.folder / "manifest.json").read_text().replace('": ', '":')
    assert old in text
    (tmp_path / "manifest.json").write_text(text.replace(old, new))
    with pytest.raises(CorpusError, match=said):
        read_manifest(tmp_path)


def test_a_count_that_was_changed_in_the_manifest_is_noticed_and_the_corpus_made_again(declare, tmp_path):
    first = prepare(declare(), vocabulary=300, folder=tmp_path, base=tmp_path)
    path = first.folder / "manifest.json"
    whole, count = path.read_text(), first.manifest.splits.train.documents
    path.chmod(0o644)
    path.write_text(whole.replace(f'"documents": {count}', f'"documents": {count + 1}'))
    again = prepare(declare(), vocabulary=300, folder=tmp_path, base=tmp_path)
    assert (again.reused, again.manifest) == (False, first.manifest)
    assert "manifest.json: was changed after it was written" in str(again.damage)
    assert path.read_text() == whole


def test_a_manifest_is_read_however_it_is_laid_out_and_without_a_checksum_too(small, tmp_path):
    plain = json.loads((small.folder / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(plain, sort_keys=True))
    assert read_manifest(tmp_path) == small.manifest
    del plain["checksum"]
    (tmp_path / "manifest.json").write_text(json.dumps(plain))
    assert read_manifest(tmp_path) == small.manifest.model_copy(update={"checksum": None})


def test_a_folder_without_a_manifest_is_not_a_corpus(tmp_path):
    with pytest.raises(CorpusError, match=r"manifest\.json: cannot be read \(No such file"):
        open_split(tmp_path, split="train")


def test_a_place_that_cannot_be_written_is_named(declare, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match="file: a corpus cannot be written there"):
        prepare(declare(), vocabulary=300, folder=tmp_path / "file", base=tmp_path)


def test_a_corpus_is_found_only_once_it_is_prepared_and_finding_prepares_nothing(declare, tmp_path):
    assert find(declare(), vocabulary=300, folder=tmp_path / "corpora", base=tmp_path) is None
    assert not (tmp_path / "corpora").exists()
    prepared = prepare(declare(), vocabulary=300, folder=tmp_path / "corpora", base=tmp_path)
    found = find(declare(), vocabulary=300, folder=tmp_path / "corpora", base=tmp_path)
    assert found == replace(prepared, reused=True)
