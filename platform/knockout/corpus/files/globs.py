"""Globs on this machine, in which `**` descends through folders and links to them.

The invariant: `**` goes into each real folder once, however many links lead to it, and by a path without a link where one is
there. So it ends where links form a loop, and finds the same whatever order a file system lists its names in.
"""

from __future__ import annotations

import glob
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

from knockout.corpus.files.stores import reading

Refuse = Callable[[OSError], None]
"""Called with what is wrong with a folder that cannot be read."""


def matches(pattern: str, *, root: Path, refuse: Refuse | None = None, hidden: bool = False) -> Iterator[Path]:
    """What a glob names, seen from `root`, in no order; names that begin with a dot only where it is said or asked for."""
    if pattern.endswith("/"):  # it names folders
        return
    before, *after = _between_stars(pattern)
    found = list(_match(before, root, hidden=hidden))
    for part in after:
        folders = _tree(found, refuse=refuse, hidden=hidden)
        found = list(chain.from_iterable(map(partial(_match, part or "*", hidden=hidden), folders)))
    yield from found


def _between_stars(pattern: str) -> list[str]:
    """The stretches of a pattern before, between and after its components `**`; nothing stands for all names."""
    parts: list[list[str]] = [[]]
    for name in pattern.split("/"):
        if name != "**":
            parts[-1].append(name)
        elif parts[-1] or len(parts) == 1:
            parts.append([])
    return ["/".join(part) for part in parts]


def _match(pattern: str, folder: Path, *, hidden: bool) -> Iterator[Path]:
    if not pattern:
        yield folder
    else:
        yield from (folder / name for name in glob.iglob(pattern, root_dir=folder, include_hidden=hidden))


def _tree(roots: Iterable[Path], *, refuse: Refuse | None, hidden: bool) -> Iterator[Path]:
    """The folders among `roots` and all below them, each once; those behind links after all others."""
    waiting = deque(sorted(filter(os.path.isdir, roots)))
    seen: set[tuple[int, int]] = set()
    while waiting:
        for parent, names, _ in os.walk(waiting.popleft(), onerror=refuse):
            place = _place(parent)
            if place in seen:
                names.clear()
                continue
            seen.add(place)
            names[:] = sorted(name for name in names if hidden or not name.startswith("."))
            waiting.extend(path for name in names if (path := Path(parent, name)).is_symlink())
            yield Path(parent)


def _place(folder: str) -> tuple[int, int]:
    """What tells a folder from all others, whatever it is called."""
    with reading(folder):
        about = os.stat(folder)
    return about.st_dev, about.st_ino
