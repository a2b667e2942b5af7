"""The commands on corpora, as a person uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from knockout.cli import main

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
    code, said = home.knockout("corpus", "prepare", str(notes))
    assert (code, "vocabulary 512: nothing changed" in said) == (0, True)
    code, said = home.knockout("corpus", "show", str(notes))
    assert code == 0, said
    assert "\\x1b[31mred" in said
    assert "\\u202eturned" in said
    assert "end of document" in said
    assert not {"\x1b", "\u202e"} & set(said)
    [shard] = home.folder.glob("corpora/notes-*/train*.arrow")
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-9])
    code, said = home.knockout("corpus", "verify", "notes")
    assert (code, f"{shard}: damaged" in said) == (1, True)


@pytest.fixture
def told(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run a command in this process: its exit code, and what it said on standard output and standard error."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("KNOCKOUT_HOME", str(tmp_path / "home"))

    def tell(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["knockout", "corpus", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return tell


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
