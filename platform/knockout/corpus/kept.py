"""The corpora that a folder holds, told by the names of their folders.

The invariant: nothing is read here but names, sizes and manifests, so that a damaged corpus is listed too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from knockout.corpus.manifest import Manifest, read_manifest
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

    @property
    def num_bytes(self) -> int:
        """Bytes of its files."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


def kept(folder: Path) -> list[Kept]:
    """Every prepared corpus of a folder, by name, then vocabulary, then the time of its preparation."""
    found = ((path, FOLDER.fullmatch(path.name)) for path in folder.glob("[!.]*") if path.is_dir())
    corpora = [Kept(match["name"], int(match["vocabulary"]), path) for path, match in found if match]
    return sorted(corpora, key=lambda one: (one.name, one.vocabulary, one.folder.stat().st_mtime, one.folder.name))


def choose(name: str, *, vocabulary: int | None, folder: Path, said: str) -> Kept:
    """The one prepared corpus that a name, or a prepared folder's name, and a vocabulary stand for; a person `said` it.

    Raises:
        CorpusError: there is none, or several.
    """
    named = [one for one in kept(folder) if name in (one.name, one.folder.name)]
    fitting = [one for one in named if vocabulary in (None, one.vocabulary)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        several = len({one.vocabulary for one in fitting}) > 1
        how = "--vocabulary, or the name of the folder" if several else "the name of the folder in place of its own"
        raise CorpusError(f"corpus {name} is prepared {len(fitting)} times; say which with {how}:\n{_lines(fitting)}")
    if named:
        raise CorpusError(f"corpus {name} is not prepared with a vocabulary of {vocabulary:,}, but as:\n{_lines(named)}")
    size = f" --vocabulary {vocabulary}" if vocabulary is not None else ""
    raise CorpusError(f"corpus {name} is not prepared in {folder}: `knockout corpus prepare {said}{size}` does it")


def _lines(corpora: list[Kept]) -> str:
    return "\n".join(f"  {one.folder.name}: vocabulary {one.vocabulary:,}{_documents(one)}" for one in corpora)


def _documents(one: Kept) -> str:
    if (manifest := one.manifest) is None:
        return ", damaged"
    sides = (manifest.splits.train, manifest.splits.validation)
    return f", {sum(side.documents for side in sides):,} documents, {sum(side.tokens for side in sides):,} tokens"
