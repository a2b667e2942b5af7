"""Which files a glob names: the standard library's own globbing is the measure wherever no link goes round."""

from __future__ import annotations

import glob
import os
import pwd
import tempfile
from pathlib import Path

import pytest

from knockout.corpus.files.addresses import beside, find_files
from knockout.corpus.files.globs import matches
from knockout.errors import CorpusError

NAMES = """a.txt b.md one/a.txt one/two/a.txt one/two/.b.txt .hidden/a.txt o[1]/a.txt x/one/c.txt"""
PATTERNS = """*.txt **/*.txt ** one/** **/one/** **/one/* **/**/a.txt */a.txt **/two/**/*.txt o*/**/a* **/ o[[]1]/* **/.b.txt
    .*/**/a.txt nothing/**/* */** **/[!b]*.txt
    x**/one/*.txt **/t?o/* **/*/**/*.txt **/*/*/** one/two/../** .hidden/*
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Folders three deep, hidden names, names in brackets, and a link to a file."""
    for name in NAMES.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "link.txt").symlink_to("one/a.txt")
    return tmp_path


@pytest.mark.parametrize("pattern", PATTERNS.split())
@pytest.mark.parametrize("hidden", [False, True])
def test_a_glob_names_what_the_standard_library_names(tree, pattern, hidden):
    named = (tree / name for name in glob.iglob(pattern, root_dir=tree, recursive=True, include_hidden=hidden))
    expected = {path for path in named if path.is_file()}
    assert {path for path in matches(pattern, root=tree, hidden=hidden) if path.is_file()} == expected
    if not hidden:
        assert {path for path in matches(f"{tree}/{pattern}", root=Path("/")) if path.is_file()} == expected


def test_links_that_go_round_are_followed_once(tmp_path, source):
    folder = tmp_path / "lp2"
    (folder / "deep").mkdir(parents=True)
    for name in ("x.jsonl", "deep/y.jsonl"):
        (folder / name).write_text('{"text": "a"}\n')
    (folder / "a-loop").symlink_to(".")
    (folder / "deep/up").symlink_to("../../lp2")
    (folder / "into").symlink_to("deep")
    declared = source({"paths": ["../lp2/**/*.jsonl"]})
    (tmp_path / "data").mkdir()
    assert find_files(declared, base=tmp_path / "data") == [str(folder / "deep/y.jsonl"), str(folder / "x.jsonl")]
    assert list(beside(declared, base=tmp_path / "data")) == []


def test_what_lies_behind_a_link_alone_is_named_through_it(tmp_path, source):
    for name in ("elsewhere/z.txt", "here/a/b.txt"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "here/a/far").symlink_to(tmp_path / "elsewhere")
    found = find_files(source({"paths": ["here/**/*.txt"]}), base=tmp_path)
    assert found == [str(tmp_path / "here/a/b.txt"), str(tmp_path / "here/a/far/z.txt")]


def test_a_folder_that_cannot_be_read_is_refused_and_not_passed_over(source):
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        (Path(place) / "one").mkdir(0o700 if user == 0 else 0)
        os.seteuid(user or pwd.getpwnam("nobody").pw_uid)
        try:
            with pytest.raises(CorpusError, match=r"one: cannot be read \(Permission denied\)"):
                find_files(source({"paths": ["**/*.txt"]}), base=Path(place))
        finally:
            os.seteuid(user)
