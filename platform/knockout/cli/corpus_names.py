"""From a corpus' name on the command line to its declaration, or to the folder of a prepared one.

The invariant: looking makes nothing; a name that a file in data/ has stands for what that file declares.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from knockout import project
from knockout.corpus.kept import Kept, choose, kept
from knockout.corpus.manifest import MANIFEST
from knockout.corpus.prepare import folder_of
from knockout.declare.corpus import Corpus
from knockout.declare.load import as_path, load_corpus, load_size, read_corpus
from knockout.declare.problems import nearest
from knockout.errors import InputError, quoted


def all_declared() -> dict[str, Any]:
    """Every corpus of data/ by its file's name; in place of one that is wrong, what is wrong with it."""
    found: dict[str, Any] = {}
    for name in project.names("data"):
        try:
            found[name] = load_corpus(name)[0]
        except InputError as error:
            found[name] = str(error)
    return found


def misnamed(path: Path, *, corpus: Corpus) -> str:
    """What to say where a declaration in data/ is called otherwise than its file, or as another; else nothing."""
    if path.stem == corpus.corpus or path not in [project.find("data", name) for name in project.names("data")]:
        return ""
    other = project.find("data", corpus.corpus)
    shared = "" if other is None else f", as {other} may do too"
    return f"{path} declares a corpus called '{corpus.corpus}'{shared}: give the corpus and its file one name"


def usual_vocabulary(name: str, *, folder: Path) -> int:
    """That of the prepared corpus of this name, or the smallest size's where there is none."""
    known = sorted({one.vocabulary for one in kept(folder) if one.name == name})
    if len(known) > 1:
        said = ", ".join(f"{size:,}" for size in known)
        raise InputError(f"corpus {name} is prepared with vocabularies of {said}: say which with --vocabulary")
    return known[0] if known else load_size("pico").data["vocabulary"]


def find_prepared(name: str, *, vocabulary: int | None, folder: Path) -> Path:
    """The folder of the prepared corpus that is meant: by its own path, or among those in `folder`.

    Raises:
        InputError: there is no corpus of that name, its declaration is wrong, or it is not prepared, or several times.
    """
    here = kept(folder)
    names, there = project.names("data"), {one.name for one in here}
    path = as_path(name)
    if path is not None and path.is_dir():
        return _prepared_folder(path)
    if path is None and name not in names:
        if name not in there and name not in [one.folder.name for one in here]:
            known = sorted({*names, *there})
            raise InputError(f"no corpus {quoted(name)} (there are {', '.join(known)}){nearest(name, known)}")
        return choose(name, vocabulary=vocabulary, folder=folder, said=name).folder
    try:
        corpus, base = read_corpus(path) if path is not None else load_corpus(name)
    except InputError:
        if name in there:
            return choose(name, vocabulary=vocabulary, folder=folder, said=name).folder
        raise
    current = partial(_current, corpus, base=base, folder=folder)
    return choose(corpus.corpus, vocabulary=vocabulary, folder=folder, said=name, current=current).folder


def earlier(chosen: Path, *, folder: Path) -> list[Kept]:
    """The others of a prepared corpus' name and vocabulary."""
    here = kept(folder)
    same = {(one.name, one.vocabulary) for one in here if one.folder == chosen}
    return [one for one in here if (one.name, one.vocabulary) in same and one.folder != chosen]


def _current(corpus: Corpus, vocabulary: int, *, base: Path, folder: Path) -> Path:
    return folder_of(corpus, vocabulary=vocabulary, folder=folder, base=base)


def _prepared_folder(path: Path) -> Path:
    if not (path / MANIFEST).is_file():
        raise InputError(f"{path} holds no prepared corpus: there is no {MANIFEST} in it")
    return path
