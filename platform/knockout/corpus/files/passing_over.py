"""Files that a source's paths pass over although they resemble those that are taken.

The invariant: nothing is said of a file that is taken, and what is said of the others changes nothing of the corpus.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from knockout.corpus.files.globs import matches

Reason = Literal["hidden", "in another case", "a link to nothing"]


@dataclass(frozen=True)
class PassedOver:
    """A local file that is not taken, and why."""

    path: Path
    reason: Reason


def passed_over(pattern: str, *, ends: tuple[str, ...], taken: Collection[Path]) -> Iterator[PassedOver]:
    """The files beside the `taken` ones that a path or glob would name if it took hidden names, and letters in either case.

    Of a folder's files only those that end in one of `ends`, in either case.
    """
    root, rest = _fixed(pattern)
    if rest:
        found = matches(_in_either_case(rest), root=root, hidden=True)
        inside = {str(path.relative_to(root)) for path in found}
    else:
        inside = {name for name in _names(root) if name.lower().endswith(ends)}
    for name in sorted(inside):
        path = root / name
        if path not in taken and (reason := _reason(path, name=name)) is not None:
            yield PassedOver(path, reason)


def _reason(path: Path, *, name: str) -> Reason | None:
    if path.is_symlink() and not path.exists():
        return "a link to nothing"
    if not path.is_file():
        return None
    return "hidden" if any(part.startswith(".") for part in Path(name).parts) else "in another case"


def _fixed(pattern: str) -> tuple[Path, str]:
    """The folder in which a pattern begins to choose, and what chooses there; nothing where the pattern is a folder."""
    whole = Path(pattern)
    if whole.is_dir():
        return whole, ""
    root, *parts = whole.parts
    here = Path(root)
    while parts and not glob.has_magic(parts[0]) and (here / parts[0]).is_dir():
        here /= parts.pop(0)
    return here, os.path.join(*parts)


def _names(folder: Path) -> Iterator[str]:
    """Every file of a folder, seen from it; links to folders are not followed, as in a folder that is taken."""
    for parent, _, files in os.walk(folder):
        yield from (os.path.relpath(os.path.join(parent, name), folder) for name in files)


def _in_either_case(pattern: str) -> str:
    """A glob whose letters outside brackets match in either case."""

    def either(part: str) -> str:
        return re.sub("[^\\W\\d_]", lambda letter: f"[{letter[0].lower()}{letter[0].upper()}]", part)

    parts = re.split(r"(\[[^]]*\])", pattern)
    return "".join(part if part.startswith("[") and part.endswith("]") else either(part) for part in parts)
