"""The corpora that a folder holds, told by the names of their folders.

The invariant: nothing is read here but names, sizes and manifests, so that a damaged corpus is listed too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from knockout.corpus.manifest import Manifest, read_manifest
from knockout.declare.corpus import Corpus
from knockout.errors import CorpusError

FOLDER = re.compile(r"(?P<name>.+)-(?P<vocabulary>\d+)-[0-9a-f]{16}")


@dataclass(frozen=True)
class Kept:
    """A corpus that was prepared."""

    name: str
    vocabulary: int
    folder: Path

    @property
    def manifest(self) -> Manifest | None:
        """What it is; None where the manifest is missing or damaged."""
        try:
            return read_manifest(self.folder)
        except CorpusError:
            return None

    def is_of(self, declared: Corpus) -> bool:
        """Whether its declaration is this one, where a format that is not declared may be the one that was found."""
        manifest = self.manifest
        said = declared.model_dump(mode="json")
        return manifest is not None and _agrees(manifest.declaration.model_dump(mode="json"), said=said)

    @property
    def when(self) -> str:
        """The local time of its preparation, to the minute."""
        return datetime.fromtimestamp(self.folder.stat().st_mtime).strftime("%Y-%m-%d %H:%M")

    @property
    def num_bytes(self) -> int:
        """Bytes of its files."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


def _agrees(found: Any, *, said: Any) -> bool:
    if isinstance(found, dict) and isinstance(said, dict):
        same = ((key == "format" and said[key] is None) or _agrees(found[key], said=said[key]) for key in said)
        return found.keys() == said.keys() and all(same)
    if isinstance(found, list) and isinstance(said, list):
        return len(found) == len(said) and all(_agrees(one, said=other) for one, other in zip(found, said, strict=True))
    return found == said


def kept(folder: Path) -> list[Kept]:
    """Every prepared corpus of a folder, by name, then vocabulary, then the time of its preparation."""
    found = ((path, FOLDER.fullmatch(path.name)) for path in folder.glob("[!.]*") if path.is_dir())
    corpora = [Kept(match["name"], int(match["vocabulary"]), path) for path, match in found if match]
    return sorted(corpora, key=lambda one: (one.name, one.vocabulary, one.folder.stat().st_mtime, one.folder.name))


def choose(
    name: str, *, vocabulary: int | None, folder: Path, said: str, current: Callable[[int], Path] | None = None
) -> Kept:
    """The one prepared corpus that a name, or a prepared folder's name, and a vocabulary stand for; a person `said` it.

    Of several, the one that `current` gives for its vocabulary: the folder of what is declared and written now.

    Raises:
        CorpusError: there is none, or several of which none is the current one.
    """
    named = [one for one in kept(folder) if name in (one.name, one.folder.name)]
    fitting = [one for one in named if vocabulary in (None, one.vocabulary)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        return _current(name, fitting, current=current)
    if named:
        raise CorpusError(f"corpus {name} is not prepared with a vocabulary of {vocabulary:,}, but as:\n{_lines(named)}")
    size = f" --vocabulary {vocabulary}" if vocabulary is not None else ""
    raise CorpusError(f"corpus {name} is not prepared in {folder}: `knockout corpus prepare {said}{size}` does it")


def _current(name: str, fitting: list[Kept], *, current: Callable[[int], Path] | None) -> Kept:
    """That of several prepared corpora which is what its declaration and its text make now."""
    vocabularies = sorted({one.vocabulary for one in fitting})
    unknown = ""
    now: list[Kept] = []
    try:
        folders = [current(size).name for size in vocabularies] if current is not None else []
        now = [one for one in fitting if one.folder.name in folders]
        if folders and not now:
            unknown = "; none of them is of what its declaration and its text are now"
    except CorpusError as error:
        unknown = f"; which of them is of its text as it is now cannot be told ({error})"
    if len(now) == 1:
        return now[0]
    several = len(vocabularies) > 1
    how = "--vocabulary, or the name of the folder" if several else "the name of the folder in place of its own"
    lines = _lines(fitting, current=now)
    raise CorpusError(f"corpus {name} is prepared {len(fitting)} times{unknown}; say which with {how}:\n{lines}")


def _lines(corpora: list[Kept], *, current: Sequence[Kept] = ()) -> str:
    return "\n".join(
        f"  {one.folder.name}: vocabulary {one.vocabulary:,}{_documents(one)}, prepared {one.when}"
        f"{', current' if one in current else ''}"
        for one in corpora
    )


def _documents(one: Kept) -> str:
    if (manifest := one.manifest) is None:
        return ", damaged"
    sides = (manifest.splits.train, manifest.splits.validation)
    return f", {sum(side.documents for side in sides):,} documents, {sum(side.tokens for side in sides):,} tokens"
