"""YAML to plain data with places."""

from __future__ import annotations

from pathlib import Path

import pytest

from knockout.declare.document import Mark, parse_document, read_document
from knockout.errors import DeclarationError, InputError


def test_values_remember_line_and_column():
    document = parse_document("a: 1\nb:\n  - x\n  - c: 2\n", file="s.yaml")
    assert document.data == {"a": 1, "b": ["x", {"c": 2}]}
    assert document.marks["b", 1, "c"] == Mark("s.yaml", 4, 5)


def test_scalars_follow_yaml_1_2():
    document = parse_document("a: no\nb: 1e-3\nc: 0o10\nd: 12:30\ne: 2026-01-02\nf: 1_000\ng: ~\nh: .5", file="s.yaml")
    assert document.data == {"a": "no", "b": 1e-3, "c": 8, "d": "12:30", "e": "2026-01-02", "f": 1000, "g": None, "h": 0.5}


def test_every_repeated_key_is_named_with_its_line():
    with pytest.raises(DeclarationError) as caught:
        parse_document("a: 1\na: 2\nb: {c: 1, c: 2}\n", file="s.yaml")
    assert [str(problem) for problem in caught.value.problems] == [
        "s.yaml:2:1: a: the key 'a' is written twice",
        "s.yaml:3:11: b.c: the key 'c' is written twice",
    ]


@pytest.mark.parametrize("text", ["a: !!python/object/apply:os.system ['true']", "a: !x 1", "a: !!binary aGk="])
def test_no_tag_can_construct_anything(text: str):
    with pytest.raises(DeclarationError, match="is not allowed"):
        parse_document(text, file="s.yaml")


def test_aliases_cannot_blow_up():
    levels = "\n".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 9))
    with pytest.raises(DeclarationError, match="too large"):
        parse_document(f"l0: &l0 [x]\n{levels}", file="s.yaml")


@pytest.mark.parametrize(("text", "line"), [("a: [1", 2), ("a: 1\n b: 2", 2), ("a: \t- 1\n\tb: 2", 1)])
def test_bad_yaml_names_the_line(text: str, line: int):
    with pytest.raises(DeclarationError) as caught:
        parse_document(text, file="s.yaml")
    assert caught.value.problems[0].message.startswith("not valid YAML")
    assert abs(caught.value.problems[0].line - line) <= 1


@pytest.mark.parametrize("text", ["", "- 1", "just text"])
def test_a_file_must_hold_a_mapping(text: str):
    with pytest.raises(DeclarationError, match="must hold a mapping"):
        parse_document(text, file="s.yaml")


def test_unreadable_files_are_named(tmp_path: Path):
    (tmp_path / "latin.yaml").write_bytes("a: é".encode("latin-1"))
    with pytest.raises(InputError, match=r"latin\.yaml: not UTF-8 text \(byte 3\)"):
        read_document(tmp_path / "latin.yaml")
    with pytest.raises(InputError, match="no such file"):
        read_document(tmp_path / "missing.yaml")
    with pytest.raises(InputError, match="Is a directory"):
        read_document(tmp_path)
