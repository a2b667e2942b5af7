"""Which files a source names.

The invariant: each file is named once, in the order of its address' bytes (a path's seen from the declaration's folder),
whatever order a file system or a store lists them in.
"""

from __future__ import annotations

import glob
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from knockout.corpus.files.hub import find_parquet
from knockout.corpus.files.stores import file_system, reading, scheme_of
from knockout.declare.text_sources import Files, HuggingFace, PythonSource, TextSource
from knockout.errors import CorpusError

NOT_THE_LIBRARY = {"site-packages", "dist-packages", "__pycache__"}
ENDS = {
    "text": ("",),
    "jsonl": (".jsonl", ".jsonl.gz", ".jsonl.zst"),
    "parquet": (".parquet",),
    "arrow": (".arrow",),
}
"""What a file's name must end in to be taken from a folder; nothing for text."""


def find_files(source: TextSource, *, base: Path) -> list[str]:
    """The addresses of a source's files.

    Raises:
        CorpusError: a path matches nothing, or a store cannot be read.
    """
    match source:
        case PythonSource():
            return _local(list(_walk(library(), ends=(".py",), skip=NOT_THE_LIBRARY)), base=library())
        case Files():
            return _declared(source, base=base)
        case HuggingFace():
            return sorted(find_parquet(source))


def library() -> Path:
    """The folder of the running interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def _declared(source: Files, *, base: Path) -> list[str]:
    here: list[Path] = []
    elsewhere: set[str] = set()
    missing: list[str] = []
    ends = ENDS[source.format]
    for pattern in source.paths:
        if scheme_of(pattern) is None:
            found = list(_match(os.path.join(base, os.path.expanduser(pattern)), ends=ends))
            here += found
        else:
            found = list(_match_remote(pattern, ends=ends))
            elsewhere.update(found)
        if not found:
            missing.append(pattern)
    if missing:
        kind = f"{source.format} files" + (f" ({', '.join(ends)})" if ends != ("",) else "")
        raise CorpusError(f"no {kind} match {', '.join(map(repr, missing))} under {base}")
    return _local(here, base=base) + sorted(elsewhere)


def _match(pattern: str, *, ends: tuple[str, ...]) -> Iterator[Path]:
    literal = Path(pattern)
    for path in [literal] if literal.exists() else map(Path, glob.iglob(pattern, recursive=True)):
        if path.is_dir():
            if literal.exists():
                yield from _walk(path, ends=ends, skip=set())
        elif path.is_file() or not path.exists():  # a pipe or a device is no text; a broken link is told when it is read
            yield path


def _match_remote(pattern: str, *, ends: tuple[str, ...]) -> Iterator[str]:
    if scheme_of(pattern) in ("http", "https"):
        yield pattern
        return
    with reading(pattern):
        files = file_system(pattern)
        files.invalidate_cache()
        if glob.has_magic(pattern):
            names = [name for name, about in files.glob(pattern, detail=True).items() if about["type"] == "file"]
        elif files.isdir(pattern):
            names = [name for name in files.find(pattern) if name.endswith(ends) and "/." not in name]
        else:
            names = [pattern] if files.exists(pattern) else []
        yield from (files.unstrip_protocol(name) for name in names)


def _walk(folder: Path, *, ends: tuple[str, ...], skip: set[str]) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if name not in skip and not name.startswith(".")]
        kept = (name for name in files if name.endswith(ends) and not name.startswith("."))
        paths = (Path(parent, name) for name in kept)
        yield from (path for path in paths if path.is_file() or not path.exists())


def _refuse(error: OSError) -> None:
    raise CorpusError(f"{error.filename}: cannot be read ({error.strerror})")


def _local(files: list[Path], *, base: Path) -> list[str]:
    unique = {os.path.realpath(path): path for path in files}
    return [str(path) for path in sorted(unique.values(), key=lambda path: os.fsencode(os.path.relpath(path, base)))]
