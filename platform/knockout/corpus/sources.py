"""Documents of a declared source, one after the other.

The invariant: files are read in the order of their relative paths' bytes, whatever order the file system
lists them in, and every error names the file and the place in it.
"""

from __future__ import annotations

import glob
import json
import os
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from knockout.corpus.generators import generate
from knockout.corpus.text import BOM, Undecodable, normalise
from knockout.declare.corpus import Files, PythonSource, Source
from knockout.declare.generators import Composition, Generator, Markov, Recall, WordProblem
from knockout.errors import CorpusError

NOT_THE_LIBRARY = {"site-packages", "dist-packages", "__pycache__"}
SUFFIXES = {"text": "", "jsonl": ".jsonl", "parquet": ".parquet"}
"""What a file's name must end in to be taken from a folder; nothing for text."""

Documents = Iterator[bytes | None]
"""A document's content; None for one that was skipped because it is not UTF-8."""
Progress = Callable[[float], None]


def read_documents(source: Source, *, base: Path, progress: Progress) -> Documents:
    """Each document's content: UTF-8 text, or a generator's symbols as little-endian 16-bit integers.

    Raises:
        CorpusError: nothing matches, a file cannot be read or decoded, or a record is wrong.
    """
    match source:
        case PythonSource():
            library = Path(sysconfig.get_paths()["stdlib"])
            files = list(_walk(library, suffix=".py", skip=NOT_THE_LIBRARY))
            return _read_files(_sorted(files, base=library), _text(None), skip=True, progress=progress)
        case Files():
            files = find_files(source, base=base)
            return _read_files(files, _reader(source), skip=source.undecodable == "skip", progress=progress)
        case Markov() | Recall() | Composition() | WordProblem():
            return _symbols(source, progress=progress)


def find_files(source: Files, *, base: Path) -> list[Path]:
    """The files that a declaration names, each once, in the order of their relative paths' bytes.

    Raises:
        CorpusError: a path matches nothing.
    """
    found: list[Path] = []
    missing: list[str] = []
    for pattern in source.paths:
        absolute = os.path.join(base, os.path.expanduser(pattern))
        matched = list(_match(absolute, suffix=SUFFIXES[source.format]))
        found += matched
        if not matched:
            missing.append(pattern)
    if missing:
        kind = f"{source.format} files" + (f" ({SUFFIXES[source.format]})" if SUFFIXES[source.format] else "")
        raise CorpusError(f"no {kind} match {', '.join(map(repr, missing))} under {base}")
    return _sorted(found, base=base)


def _match(pattern: str, *, suffix: str) -> Iterator[Path]:
    literal = Path(pattern)
    for path in [literal] if literal.exists() else map(Path, glob.iglob(pattern, recursive=True)):
        if path.is_dir():
            if literal.exists():
                yield from _walk(path, suffix=suffix, skip=set())
        elif path.is_file() or not path.exists():  # a pipe or a device is no text; a broken link is told when it is read
            yield path


def _walk(folder: Path, *, suffix: str, skip: set[str]) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if name not in skip and not name.startswith(".")]
        kept = (name for name in files if name.endswith(suffix) and not name.startswith("."))
        paths = (Path(parent, name) for name in kept)
        yield from (path for path in paths if path.is_file() or not path.exists())


def _refuse(error: OSError) -> None:
    raise CorpusError(f"{error.filename}: cannot be read ({error.strerror})")


def _sorted(files: list[Path], *, base: Path) -> list[Path]:
    unique = {os.path.realpath(path): path for path in files}
    return sorted(unique.values(), key=lambda path: os.fsencode(os.path.relpath(path, base)))


Reader = Callable[[Path], Iterator[bytes | Undecodable]]


def _read_files(files: list[Path], read: Reader, *, skip: bool, progress: Progress) -> Documents:
    for index, path in enumerate(files):
        try:
            for document in read(path):
                if isinstance(document, bytes):
                    yield document
                elif skip:
                    yield None
                else:
                    raise CorpusError(f"{document.reason}; set `undecodable: skip` to leave such documents out")
        except OSError as error:
            raise CorpusError(f"{path}: cannot be read ({error.strerror or error})") from None
        progress((index + 1) / len(files))


def _reader(source: Files) -> Reader:
    match source.format:
        case "text":
            return _text(source.separator)
        case "jsonl":
            return _jsonl(source.column)
        case "parquet":
            return _parquet(source.column)


def _text(separator: str | None) -> Reader:
    def read(path: Path) -> Iterator[bytes | Undecodable]:
        document = normalise(path.read_bytes(), where=str(path))
        if separator is None or isinstance(document, Undecodable):
            yield document
        else:
            yield from document.split(separator.encode())

    return read


def _jsonl(column: str) -> Reader:
    def read(path: Path) -> Iterator[bytes | Undecodable]:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line := line.removeprefix(BOM).strip(b" \t\r\n"):
                    yield _record(line, column=column, where=f"{path}: line {number}")

    return read


def _record(line: bytes, *, column: str, where: str) -> bytes | Undecodable:
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Undecodable(f"{where}, byte {error.start}: not UTF-8 text ({error.reason})")
    except (json.JSONDecodeError, RecursionError) as error:
        raise CorpusError(f"{where}: not a JSON record ({error})") from None
    if not isinstance(record, dict):
        kind = type(record).__name__
        raise CorpusError(f"{where}: a record must be an object with a '{column}', found {kind}")
    if column not in record:
        raise CorpusError(f"{where}: no column '{column}'; there are {', '.join(map(repr, record))}")
    if not isinstance(text := record[column], str):
        raise CorpusError(f"{where}: column '{column}' must be text, found {type(text).__name__}")
    try:
        return normalise(text.encode("utf-8"), where=where)
    except UnicodeEncodeError as error:
        return Undecodable(f"{where}, character {error.start}: not Unicode text (a lone surrogate)")


def _parquet(column: str) -> Reader:
    def read(path: Path) -> Iterator[bytes | Undecodable]:
        try:
            with pq.ParquetFile(path) as file:
                _check_column(file.schema_arrow, column=column, path=path)
                row = 0
                for part in file.iter_batches(batch_size=1024, columns=[column], use_threads=False):
                    for value in part.column(0).cast(pa.large_binary()):
                        row += 1
                        yield normalise(value.as_py() or b"", where=f"{path}: row {row}")
        except pa.ArrowException as error:
            raise CorpusError(f"{path}: not a readable Parquet file ({error})") from None

    return read


def _check_column(schema: pa.Schema, *, column: str, path: Path) -> None:
    if column not in schema.names:
        raise CorpusError(f"{path}: no column '{column}'; there are {', '.join(map(repr, schema.names))}")
    kind = schema.field(column).type
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    tests += (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    if not any(test(value) for test in tests):
        raise CorpusError(f"{path}: column '{column}' must be text, found {kind}")


def _symbols(source: Generator, *, progress: Progress) -> Documents:
    for count, document in enumerate(generate(source), start=1):
        yield document.astype(np.dtype("<u2")).tobytes()
        if count % 1024 == 0 or count == source.documents:
            progress(count / source.documents)
