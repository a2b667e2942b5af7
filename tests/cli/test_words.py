"""What a message quotes of a file or of the command line is for reading: no control character, no endless word."""

from __future__ import annotations

import json
import time
from pathlib import Path

import jsonschema
import pytest

from knockout.declare.document import MAX_BYTES, read_document

STUDY = "study: odd\nquestion: q\ncorpus: python-source\nsize: pico\n"
ODD = "x\x1b]0;PWNED\x07\x1b[2J"


@pytest.fixture(autouse=True)
def inside(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("KNOCKOUT_HOME", str(tmp_path / "home"))


def is_plain(text: str) -> bool:
    return all(character.isprintable() or character == "\n" for character in text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (r'variants: {"x\e]0;PWNED\a\e[2J": {norm: {kind: rms}}}', r"the key 'x\x1b]0;PWNED\x07\x1b[2J' holds"),
        (r'"see\e[31mds": 2', r"the key 'see\x1b[31mds' holds the character U+001B"),
        (r'variants: {"a\nok: 3 runs": {norm: {kind: rms}}}', r"the key 'a\nok: 3 runs' holds the character U+000A"),
        (r'variants: {"\ud800": {norm: {kind: rms}}}', r"the key '\ud800' holds the character U+D800"),
        (r'variants: {"\u202eabc": {norm: {kind: rms}}}', r"the key '\u202eabc' holds the character U+202E"),
        (r'baseline: {norm: {kind: "a\nb"}}', r"'a\nb' is not"),
        (f"baseline: {{{'k' * 300}: 3}}", f": {'k' * 60}…: "),
        (f"variants: {{one: {{norm: {{kind: {'v' * 300}}}}}}}", f"'{'v' * 60}…' is not"),
    ],
    ids=["escape", "key", "line", "surrogate", "direction", "value", "long-key", "long-value"],
)  # fmt: skip
def test_what_a_study_says_is_escaped_and_shortened(tmp_path: Path, tell, text: str, says: str):
    path = tmp_path / "odd.yaml"
    path.write_text(f"{STUDY}{text}\n")
    code, said, wrong = tell("check", str(path))
    assert (code, said) == (2, "")
    assert says in wrong
    assert f"{path}:5:" in wrong
    assert is_plain(wrong)
    assert len(wrong.splitlines()) == 1
    assert "k" * 90 not in wrong
    assert "v" * 90 not in wrong


@pytest.mark.parametrize(
    "arguments",
    [
        ("why", ODD),
        ("plan", ODD),
        ("plan", f"{ODD}.yaml"),
        ("report", ODD),
        ("status", ODD),
        ("stop", ODD),
        ("params", ODD),
        ("params", f"small:{ODD}"),
        ("plan", "small", "--size", ODD),
        ("plan", "small", "--set", f"{ODD}=1"),
        ("plan", "small", "--set", f"depth={ODD}"),
        ("corpus", "show", ODD),
        ("generate", ODD, "--prompt", "1"),
        ("reproduce", ODD),
        (ODD,),
        ("gc", "--older-than", ODD),
        ("schedule", "pause", ODD),
    ],
    ids=lambda arguments: "-".join(arguments[:-1]) or "command",
)
def test_what_the_command_line_says_is_escaped(tell, arguments: tuple[str, ...]):
    code, said, wrong = tell(*arguments)
    assert code == 2, said + wrong
    assert r"\x1b]0;PWNED\x07" in wrong
    assert is_plain(said + wrong)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("plan", "a\nb"), r"no study 'a\nb'"),
        (("plan", "\udcff"), r"no study '\udcff'"),
        (("plan", "small", "--size", "\udcff"), r"--size '\udcff' holds the character U+DCFF"),
        (("plan", "small", "--set", "\udcff=1"), r"--set '\udcff=1' holds the character U+DCFF"),
        (("why", "x" * 300), f"no run begins with '{'x' * 60}…'"),
    ],
    ids=["line", "name", "size", "setting", "long"],
)
def test_a_name_is_one_short_word_of_a_sentence(tell, arguments: tuple[str, ...], says: str):
    code, said, wrong = tell(*arguments)
    assert (code, said) == (2, "")
    assert says in wrong
    assert is_plain(wrong)
    assert len(wrong.splitlines()) == 1


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path, tell):
    path = tmp_path / "large.yaml"
    lines = "".join(f"  v{number}: {{depth: 2}}\n" for number in range(500_000))
    path.write_text(f"{STUDY}variants:\n{lines}")
    began = time.process_time()
    code, said, wrong = tell("check", str(path))
    assert (code, said) == (2, "")
    size = f"{path.stat().st_size:,}"
    assert wrong == f"{path}: has {size} bytes; a declaration may have 500,000: write less, or several files\n"
    assert time.process_time() - began < 2.0, "to parse it takes minutes"
    code, _, wrong = tell("check", "/dev/zero.yaml")
    assert code == 2
    path.unlink()
    path.symlink_to("/dev/zero")
    code, _, wrong = tell("check", str(path))
    assert (code, "bytes; a declaration may have 500,000" in wrong) == (2, True)


def test_what_is_shipped_is_far_below_the_bound():
    from knockout import project

    sizes = [path.stat().st_size for folder in ("ablations", "data") for path in (project.root() / folder).rglob("*.yaml")]
    assert 0 < max(sizes) * 10 < MAX_BYTES


@pytest.mark.parametrize("written", [False, True])
def test_the_schema_of_a_corpus_is_a_corpus(project: Path, tmp_path: Path, tell, written: bool):
    path = tmp_path / "corpus.json"
    code, said, wrong = tell("schema", "corpus", *(["-o", str(path)] if written else []))
    assert (code, wrong) == (0, "")
    schema = jsonschema.Draft202012Validator(json.loads(path.read_text() if written else said))
    schema.validate(read_document(project / "data" / "tiny.yaml").data)
    assert not schema.is_valid(read_document(project / "ablations" / "small.yaml").data)
    study = jsonschema.Draft202012Validator(json.loads(tell("schema", "study")[1]))
    study.validate(read_document(project / "ablations" / "small.yaml").data)
