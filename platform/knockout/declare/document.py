"""YAML to plain data that remembers where each value stands.

The invariant: a document holds only mappings with string keys, lists, strings, numbers, booleans and nulls, resolved by
YAML 1.2's core rules. Nothing in a file can construct an object, and no key is written twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from knockout.errors import BREAKING, UNPRINTABLE, DeclarationError, InputError, Problem, quoted

MAX_BYTES = 500_000
"""The reader, which is written in Python, takes about 5 s for each million; the largest file that is shipped has 12,000."""
TOO_LARGE = f"a declaration may have {MAX_BYTES:,}: write less, or several files"
MAX_NODES = 100_000
MAX_DEPTH = 100
PLAIN_TAGS = tuple(
    f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp")
)

Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Mark:
    """A place in a file; lines and columns count from 1."""

    file: str
    line: int
    column: int


@dataclass(frozen=True)
class Document:
    """Plain data and, for each path in it, the place where it was written."""

    data: dict[str, Any]
    marks: dict[Path_, Mark] = field(default_factory=dict)

    def mark(self, path: Path_) -> Mark:
        """The place of `path`, or of the nearest thing around it that was written."""
        for length in range(len(path), -1, -1):
            if (found := self.marks.get(path[:length])) is not None:
                return found
        return Mark("(defaults)", 0, 0)

    def at(self, key: str) -> Document:
        """The part of the document under one key, which must hold a mapping."""
        marks = {path[1:]: mark for path, mark in self.marks.items() if path[:1] == (key,)}
        return Document(self.data[key], marks)


def read_document(path: Path) -> Document:
    """Read one YAML file.

    Raises:
        InputError: the file is missing, is a folder, is too large, or is not UTF-8 text.
        DeclarationError: the YAML does not parse, repeats a key, or is not a mapping.
    """
    return parse_document(_read_text(path), file=_shown(path))


def parse_document(text: str, *, file: str) -> Document:
    """Parse YAML text; `file` is the name under which problems are reported."""
    if len(text) > MAX_BYTES:
        raise DeclarationError([Problem(file, 0, 0, "", TOO_LARGE)])
    loader = YAML(typ="safe", pure=True)
    try:
        node = loader.compose(text)
    except RecursionError:
        raise DeclarationError([Problem(file, 0, 0, "", "the file is too deeply nested")]) from None
    except MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        line, column = (place.line + 1, place.column + 1) if place else (0, 0)
        reason = f"not valid YAML: {error.problem or error.context}"
        raise DeclarationError([Problem(file, line, column, "", reason)]) from None
    except YAMLError as error:
        raise DeclarationError([Problem(file, 0, 0, "", f"not valid YAML: {str(error).splitlines()[0]}")]) from None
    if not isinstance(node, MappingNode):
        raise DeclarationError([Problem(file, 1, 1, "", "the file must hold a mapping of keys to values")])
    return _Builder(file).build(node)


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise InputError(f"{_shown(path)}: has {max(path.stat().st_size, len(content)):,} bytes; {TOO_LARGE}")
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{_shown(path)}: no such file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{_shown(path)}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise InputError(f"{_shown(path)}: cannot be read: {error.strerror}") from None


def check_readable(text: str, *, option: str) -> None:
    """Raise InputError where what was given with an option of the command line is not for reading."""
    if (odd := UNPRINTABLE.search(text) or BREAKING.search(text)) is not None:
        raise InputError(f"{option} {quoted(text)} {_holds(odd[0])}")


def _holds(character: str) -> str:
    return f"holds the character U+{ord(character):04X}, which is not for reading: remove it"


def _shown(path: Path) -> str:
    absolute = path.resolve()
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(path)


class _Builder:
    """Turns a composed node tree into a Document, collecting every problem on the way."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.marks: dict[Path_, Mark] = {}
        self.problems: list[Problem] = []
        self.num_nodes = 0
        self.constructor = YAML(typ="safe", pure=True).constructor

    def build(self, node: MappingNode) -> Document:
        data = self.value(node, path=())
        if self.problems:
            raise DeclarationError(self.problems)
        return Document(data, self.marks)

    def value(self, node: Node, *, path: Path_) -> Any:
        self.num_nodes += 1
        self.marks.setdefault(path, self.place(node))
        if self.num_nodes > MAX_NODES or len(path) > MAX_DEPTH:
            self.refuse(node, path, "the file is too large or too deeply nested (are aliases repeated in aliases?)")
            raise DeclarationError(self.problems)
        if not str(node.tag).startswith(PLAIN_TAGS):
            self.refuse(node, path, f"the YAML tag '{node.tag}' is not allowed: write a plain value")
            return None
        if isinstance(node, MappingNode):
            return dict(self.items(node, path=path))
        if isinstance(node, SequenceNode):
            return [self.value(item, path=(*path, index)) for index, item in enumerate(node.value)]
        return self.scalar(node, path=path)

    def items(self, node: MappingNode, *, path: Path_) -> Iterator[tuple[str, Any]]:
        seen: set[str] = set()
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self.refuse(key_node, path, "a key must be plain text")
                continue
            key = str(key_node.value)
            if (odd := UNPRINTABLE.search(key) or BREAKING.search(key)) is not None:
                self.refuse(key_node, path, f"the key {quoted(key)} {_holds(odd[0])}")
                continue
            if key in seen:
                self.refuse(key_node, (*path, key), f"the key {quoted(key)} is written twice")
                continue
            seen.add(key)
            self.marks[(*path, key)] = self.place(key_node)
            yield key, self.value(value_node, path=(*path, key))

    def scalar(self, node: Node, *, path: Path_) -> Any:
        kind = str(node.tag).rsplit(":", 1)[-1]
        if (odd := UNPRINTABLE.search(str(node.value))) is not None:
            self.refuse(node, path, _holds(odd[0]))
            return None
        if kind == "timestamp":
            return node.value
        try:
            return self.constructor.construct_object(node)
        except (ValueError, YAMLError):
            self.refuse(node, path, f"'{str(node.value)[:40]}' cannot be read as {kind}")
            return None

    def place(self, node: Node) -> Mark:
        return Mark(self.file, node.start_mark.line + 1, node.start_mark.column + 1)

    def refuse(self, node: Node, path: Path_, message: str) -> None:
        mark = self.place(node)
        self.problems.append(Problem(mark.file, mark.line, mark.column, ".".join(map(str, path)), message))
