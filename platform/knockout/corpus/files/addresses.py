"""Which files a source names.

The invariant: each file is named once, in the order of its address' bytes (a path's seen from the declaration's folder),
whatever order a file system or a store lists them in; of several links to one file the first counts. No folder or glob names
a hidden file or a link to nothing.
"""

from __future__ import annotations

import glob
import os
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from knockout.corpus.files.formats import check_one_format
from knockout.corpus.files.globs import matches
from knockout.corpus.files.hub import find_parquet
from knockout.corpus.files.passing_over import PassedOver, passed_over
from knockout.corpus.files.stores import file_system, reading, scheme_of
from knockout.declare.text_sources import ENDINGS, Files, HuggingFace, PythonSource, TextSource
from knockout.errors import CorpusError

FEW = 3
"""Files that are passed over and named in a message."""
NOT_THE_LIBRARY = {"site-packages", "dist-packages", "__pycache__"}


def find_files(source: TextSource, *, base: Path) -> list[str]:
    """The addresses of a source's files.

    Raises:
        CorpusError: a path matches nothing, the files are of several formats, or a store cannot be read.
    """
    match source:
        case PythonSource():
            return _local(list(_walk(library(), ends=(".py",), skip=NOT_THE_LIBRARY)), base=library())
        case Files():
            found = _declared(source, base=resolved(base))
            check_one_format(source, names=found)
            return found
        case HuggingFace():
            return sorted(find_parquet(source))


def library() -> Path:
    """The folder of the running interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def resolved(base: Path) -> Path:
    """A declaration's folder without links, from which its paths are seen."""
    return Path(os.path.realpath(base))


def beside(source: TextSource, *, base: Path) -> Iterator[PassedOver]:
    """The local files that a source's paths pass over; see `passed_over`."""
    if isinstance(source, Files):
        ends = _ends(source)
        patterns = [_seen_from(resolved(base), pattern) for pattern in source.paths if scheme_of(pattern) is None]
        taken = {path for pattern in patterns for path in _match(pattern, ends=ends)}
        found = {over.path: over for pattern in patterns for over in passed_over(pattern, ends=ends, taken=taken)}
        yield from found.values()


def _declared(source: Files, *, base: Path) -> list[str]:
    here: list[Path] = []
    elsewhere: set[str] = set()
    missing: list[str] = []
    ends = _ends(source)
    for pattern in source.paths:
        if scheme_of(pattern) is None:
            found = list(_match(_seen_from(base, pattern), ends=ends))
            here += found
        else:
            found = list(_match_remote(pattern, ends=ends))
            elsewhere.update(found)
        if not found:
            missing.append(pattern)
    if missing:
        kind = "files" if source.format is None else f"{source.format} files"
        kind += f" ({', '.join(ends)})" if ends != ("",) else ""
        hints = (hint for pattern in missing if scheme_of(pattern) is None for hint in _hints(pattern, base=base, ends=ends))
        said = "".join(f"; {hint}" for hint in dict.fromkeys(hints))
        raise CorpusError(f"source.paths: no {kind} match {', '.join(map(repr, missing))}, seen from {base}{said}")
    return _local(here, base=base) + sorted(elsewhere)


def _ends(source: Files) -> tuple[str, ...]:
    """What a file's name must end in to be taken from a folder."""
    return ENDINGS["text"] if source.format is None else ENDINGS[source.format]


def _seen_from(base: Path, pattern: str) -> str:
    """A local path or glob from the root on, for a `base` without links."""
    pattern = os.path.expanduser(pattern)
    if os.path.isabs(pattern):
        return pattern
    parts = pattern.split("/")
    while parts and parts[0] in ("", ".", ".."):
        base = base.parent if parts.pop(0) == ".." else base
    return os.path.join(base, *parts)


def _match(pattern: str, *, ends: tuple[str, ...]) -> Iterator[Path]:
    """The local files that a path or glob names, in no order; a pipe or a device is none."""
    literal = Path(pattern)
    if literal.is_dir():
        yield from _walk(literal, ends=ends, skip=set())
    elif literal.exists() or literal.is_symlink():
        if literal.is_file() or not literal.exists():  # a link to nothing that is named itself is told when it is read
            yield literal
    else:
        yield from (path for path in matches(pattern, root=Path("/"), refuse=_refuse) if path.is_file())


def _begins_in(folder: Path, pattern: str) -> bool:
    """Whether a pattern begins with the name of something that is there."""
    first = pattern.split("/")[0]
    return first not in ("", ".", "..") and not glob.has_magic(first) and (folder / first).exists()


def _hints(pattern: str, *, base: Path, ends: tuple[str, ...]) -> Iterator[str]:
    """What a local pattern that names nothing may have been meant to be."""
    full = _seen_from(base, pattern)
    if pattern.startswith("~"):
        yield f"{pattern!r} is {full!r}"
    elif _begins_in(base.parent, pattern) and any(_match(_seen_from(base.parent, pattern), ends=ends)):
        yield f"paths start at the declaration's folder: did you mean {f'../{pattern}'!r}?"
    parts = Path(full).parts
    for number, part in enumerate(parts, start=1):
        if "[" in part and os.path.exists(os.path.join(*parts[:number])):
            yield f"in a pattern, [ ] enclose characters to choose from: the name {part!r} is {part.replace('[', '[[]')!r}"
    yield from (f"{over.path} is {over.reason}" for over in islice(passed_over(full, ends=ends, taken=()), FEW))


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
        yield from (path for path in paths if path.is_file())


def _refuse(error: OSError) -> None:
    raise CorpusError(f"{error.filename}: cannot be read ({error.strerror})")


def _local(files: list[Path], *, base: Path) -> list[str]:
    in_order = sorted(files, key=lambda path: os.fsencode(os.path.relpath(path, base)))
    unique: dict[str, str] = {}
    for path in in_order:
        unique.setdefault(os.path.realpath(path), str(path))
    return list(unique.values())
