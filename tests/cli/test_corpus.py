"""The commands on corpora, as a person uses them."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from knockout.cli.benchmarks import remark
from knockout.corpus.throughput import Throughput

NOTES = """corpus: notes
source: {kind: files, paths: [notes.txt], separator: "\\n%%\\n"}
tokenizer: {kind: bytes}
validation: 0.2
evaluation: {tokens: 256, segments: 4}
"""
TEXT = "\n%%\n".join(f"note {number}: \x1b[31mred\x1b[0m, \u202eturned\u202c, and plain words\n" for number in range(200))


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text(TEXT)
    (tmp_path / "notes.yaml").write_text(NOTES)
    return tmp_path / "notes.yaml"


def test_a_corpus_is_prepared_shown_listed_and_verified(home, notes):
    code, said = home.knockout("corpus", "prepare", str(notes))
    assert code == 0, said
    assert "corpus notes, vocabulary 512: prepared in" in said
    assert "encoding train" in said
    code, said = home.here("corpus", "prepare", str(notes))
    assert (code, "vocabulary 512: nothing changed" in said) == (0, True)
    code, said = home.here("corpus", "show", str(notes))
    assert code == 0, said
    assert "\\x1b[31mred" in said
    assert "\\u202eturned" in said
    assert "end of document" in said
    assert not {"\x1b", "\u202e"} & set(said)
    [shard] = home.folder.glob("corpora/notes-*/train*.arrow")
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-9])
    code, said = home.here("corpus", "verify", "notes")
    assert (code, f"{shard}: damaged" in said) == (1, True)


@pytest.fixture
def told(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, tell):
    """`knockout corpus` in this process: its exit code, and what it said on standard output and standard error."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("KNOCKOUT_HOME", str(tmp_path / "home"))
    return partial(tell, "corpus")


def test_shown_data_is_json_with_nothing_around_it(told, notes):
    assert told("prepare", str(notes))[0] == 0
    code, said, _ = told("show", "notes", "--json")
    data = json.loads(said)
    assert code == 0
    assert data["corpus"] == "notes"
    assert data["splits"]["train"]["documents"] + data["splits"]["validation"]["documents"] == 200
    assert data["lengths"]["most"] == len(TEXT.split("\n%%\n")[199].encode())
    assert data["splits"]["train"]["bytes_per_token"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "tinny"], "no corpus 'tinny' in data/"),
        (["show", "tinny"], "did you mean 'tiny'?"),
        (["show", "tiny"], "`knockout corpus prepare tiny` does it"),
        (["verify", "tiny", "--vocabulary", "64"], "`knockout corpus prepare tiny --vocabulary 64` does it"),
        (["prepare", "nowhere/tiny.yaml"], "nowhere/tiny.yaml"),
    ],
)
def test_what_cannot_be_meant_is_told_with_exit_code_2(told, arguments, message):
    code, said, complaint = told(*arguments)
    assert (code, said, message in complaint) == (2, "", True), complaint


def test_a_corpus_prepared_with_two_vocabularies_asks_which(told):
    for vocabulary in ("32", "64"):
        assert told("prepare", "tiny", "--vocabulary", vocabulary)[0] == 0
    code, _, complaint = told("prepare", "tiny")
    assert (code, "vocabularies of 32, 64: say which with --vocabulary" in complaint) == (2, True)
    code, _, complaint = told("show", "tiny")
    assert (code, "tiny is prepared 2 times; say which with --vocabulary" in complaint) == (2, True)
    code, said, _ = told("show", "tiny", "--vocabulary", "64", "--windows", "0")
    assert (code, "with a vocabulary of 64" in said) == (0, True)


@pytest.fixture
def shared(notes, tmp_path: Path) -> Path:
    """A folder of its own with a declaration and its text."""
    folder = tmp_path / "shared"
    folder.mkdir()
    for name in ("notes.txt", "notes.yaml"):
        shutil.copy(notes.parent / name, folder)
    return folder


def override(taken: bool) -> None:
    """Take root the right to write where nobody may (CAP_DAC_OVERRIDE, see capabilities(7)), or give it back."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice 32 bits
    if libc.capget(header, data) == 0:
        data[0] = data[0] & ~2 if taken else data[0] | (data[1] & 2)
        assert libc.capset(header, data) == 0, os.strerror(ctypes.get_errno())


@contextmanager
def nobody_writes(folder: Path) -> Iterator[None]:
    """Take everybody the right to write in a folder, root too."""
    places = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in places:
        path.chmod(0o555)
    override(taken=True)
    try:
        yield
    finally:
        override(taken=False)
        for path in places:
            path.chmod(0o755)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux' capabilities")
def test_a_workspace_that_cannot_be_written_is_read_and_checked(told, shared, monkeypatch):
    monkeypatch.chdir(shared)
    here, home = str(shared / "notes.yaml"), ("--workspace", str(shared / "home"))
    commands = [("prepare", here, *home), ("verify", here, *home), ("show", here, *home), ("list", *home)]
    for command in commands:
        assert told(*command)[0] == 0
    with nobody_writes(shared / "home"):
        for command in commands:
            code, said, wrong = told(*command)
            assert (code, "cannot be written" in said + wrong) == (0, False), wrong
    with (shared / "notes.txt").open("a") as file:
        file.write("\n%%\nmore")
    with nobody_writes(shared / "home"):
        code, _, wrong = told("prepare", here, *home)
    assert (code, "home/corpora: a corpus cannot be written there (Permission denied)" in wrong) == (2, True), wrong


def test_what_is_left_out_is_told_when_a_corpus_is_prepared(told, tmp_path):
    texts = [f"note {number}\n" for number in range(200)]
    (tmp_path / "notes.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in [*texts, "", "", "\ud800"]))
    source = "source: {kind: files, paths: notes.jsonl, undecodable: skip}\n"
    (tmp_path / "notes.yaml").write_text(NOTES.splitlines()[0] + "\n" + source + "\n".join(NOTES.splitlines()[2:]))
    code, said, wrong = told("prepare", str(tmp_path / "notes.yaml"))
    assert (code, "\nleft out: 2 empty, 1 not UTF-8\n" in said) == (0, True), said + wrong


def test_what_is_declared_and_prepared_is_listed(told):
    assert told("prepare", "tiny", "--vocabulary", "32")[0] == 0
    code, said, _ = told("list", "--json")
    listed = {one["corpus"]: one for one in json.loads(said)}
    assert code == 0
    assert [one["vocabulary"] for one in listed["tiny"]["prepared"]] == [32]
    assert listed["tiny"]["declaration"]["source"]["kind"] == "markov"
    assert listed["copy"]["prepared"] == []
    assert "not prepared" in told("list")[1]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_nothing_is_wider_than_the_terminal(told, notes, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert told("prepare", str(notes))[0] == 0
    for command in (["show", "notes"], ["list"]):
        code, said, _ = told(*command)
        assert code == 0
        assert max(map(len, said.splitlines())) <= columns
        assert "…" not in said or command != ["list"]


@pytest.fixture
def data(told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a project of one's own, with the corpus `notes` in it; commands run there."""
    folder = tmp_path / "own" / "data"
    folder.mkdir(parents=True)
    (folder / "notes.yaml").write_text(NOTES)
    (folder / "notes.txt").write_text(TEXT)
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("COLUMNS", "120")
    return folder


def test_a_prepared_corpus_is_named_by_the_path_of_its_folder_from_anywhere(told, data, tmp_path, monkeypatch):
    assert told("prepare", "notes")[0] == 0
    [folder] = (tmp_path / "home" / "corpora").glob("notes-*")
    monkeypatch.chdir(tmp_path)
    for path in (folder, folder.relative_to(tmp_path)):
        code, said, _ = told("verify", str(path), "--workspace", "elsewhere")
        assert (code, f"{path}: is what its manifest says" in said) == (0, True)
    code, _, complaint = told("show", str(folder.parent))
    assert (code, f"{folder.parent} holds no prepared corpus: there is no manifest.json in it" in complaint) == (2, True)


def test_of_several_preparations_the_one_of_the_present_text_is_shown(told, data):
    assert told("prepare", "notes")[0] == 0
    (data / "notes.txt").write_text(TEXT + "\n%%\none more note")
    assert told("prepare", "notes")[0] == 0
    code, said, complaint = told("show", "notes", "--json")
    shown = json.loads(said)
    assert (code, sum(split["documents"] for split in shown["splits"].values())) == (0, 201)
    assert "prepared of other text or another declaration: notes-512-" in complaint
    assert shown["folder"].rpartition("/")[2] not in complaint.partition("declaration: ")[2]
    (data / "notes.txt").write_text(TEXT)
    assert sum(split["documents"] for split in json.loads(told("show", "notes", "--json")[1])["splits"].values()) == 200
    (data / "notes.txt").write_text(TEXT * 2)
    code, _, complaint = told("show", "notes")
    assert (code, complaint.count(", prepared 2")) == (2, 2)
    assert "is prepared 2 times; none of them is of what its declaration and its text are now; say which" in complaint


def test_a_file_that_is_called_otherwise_than_its_corpus_stands_for_what_it_declares(told, data):
    (data / "copy-of-notes.yaml").write_text(NOTES.replace("0.2", "0.3"))
    for name in ("notes", "copy-of-notes"):
        code, _, complaint = told("prepare", name)
        warned = f"copy-of-notes.yaml declares a corpus called 'notes', as {data / 'notes.yaml'} may do too" in complaint
        assert (code, warned) == (0, name == "copy-of-notes")
    shown = {name: json.loads(told("show", name, "--json")[1])["folder"] for name in ("notes", "copy-of-notes")}
    assert len(set(shown.values())) == 2
    listed = {one["name"]: one for one in json.loads(told("list", "--json")[1])}
    assert {name: [one["folder"] for one in listed[name]["prepared"]] for name in shown} == {
        name: [folder] for name, folder in shown.items()
    }
    said = told("list")[1]
    assert "copy-of-notes (corpus notes)" in " ".join(said.split())
    assert "corpus notes is declared 2 times, in copy-of-notes and notes: give each a name of its own" in said


def test_a_wrong_declaration_is_told_whole_by_each_command(told, data):
    (data / "broken.yaml").write_text(NOTES.replace("kind: bytes", "kind: byts"))
    for command in ("show", "prepare", "verify"):
        code, _, complaint = told(command, "broken")
        assert (code, "did you mean 'bytes'?" in complaint) == (2, True)
    said = told("list")[1]
    assert "wrong: see below" in said
    assert "did you mean 'bytes'?" in " ".join(said.split())


def test_a_declaration_may_end_in_yml(told, data):
    (data / "notes.yaml").rename(data / "notes.yml")
    assert told("prepare", "notes")[0] == 0
    assert json.loads(told("show", "notes", "--json")[1])["corpus"] == "notes"


def test_looking_makes_no_workspace(told, data, tmp_path):
    for command in (["list"], ["show", "notes"], ["verify", "notes"]):
        told(*command, "--workspace", str(tmp_path / "nowhere" / "at all"))
    assert not (tmp_path / "nowhere").exists()


def test_preparing_in_place_of_a_damaged_corpus_says_so(told, data, tmp_path):
    assert told("prepare", "notes")[0] == 0
    [shard] = (tmp_path / "home" / "corpora").glob("notes-*/train*.arrow")
    shard.unlink()
    code, said, _ = told("prepare", "notes")
    assert (code, f"the one that was there is replaced: {shard}: cannot be read" in said) == (0, True)


@pytest.mark.parametrize(("num_bytes", "cores", "advice"), [(24_000_000, 2, "--megabytes 64"), (64_000_000, 2, "")])
def test_rates_of_little_text_come_with_advice_to_take_more(num_bytes, cores, advice):
    said = remark(Throughput(num_bytes, cores, prepared=1.0, peers={}, windows=1.0))
    assert advice in said
    assert bool(said) == bool(advice)
