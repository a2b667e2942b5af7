"""The corpora that are declared and those that are prepared, as one list.

The invariant: a row is a declaration's file, or a corpus that is no longer declared; what is wrong, or named twice, is told
in full below the rows, however narrow the terminal is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from knockout.corpus.kept import Kept
from knockout.declare.corpus import Corpus
from knockout.report.accounts import num_bytes, number

WIDE = 80
"""Columns from which the list is a table; below, each corpus is a few lines."""


@dataclass(frozen=True)
class Row:
    """A declaration's file, or a corpus that is no longer declared."""

    name: str
    """The file's, without its ending; of what is no longer declared, the corpus'."""
    declared: Corpus | str | None
    """In place of a declaration that is wrong, what is wrong with it."""
    prepared: tuple[Kept, ...]

    @property
    def corpus(self) -> str:
        """The corpus' own name."""
        return self.declared.corpus if isinstance(self.declared, Corpus) else self.name


def list_text(declared: Mapping[str, Corpus | str], *, kept: Sequence[Kept], width: int) -> RenderableType:
    """One row a corpus, or one for each time that it is prepared, for a terminal of so many columns."""
    rows = list(_rows(declared, kept=kept))
    table = _table(rows) if width >= WIDE else Group(*(line for row in rows for line in _block(row)))
    return Group(table, *(Text(line) for line in _remarks(rows)))


def list_data(declared: Mapping[str, Corpus | str], *, kept: Sequence[Kept]) -> list[dict[str, Any]]:
    """The same as plain data."""
    return [
        {
            "name": row.name,
            "corpus": row.corpus,
            "declaration": row.declared.model_dump(mode="json") if isinstance(row.declared, Corpus) else None,
            "problem": row.declared if isinstance(row.declared, str) else None,
            "prepared": [_kept_data(one, row=row) for one in row.prepared],
        }
        for row in _rows(declared, kept=kept)
    ]


def _rows(declared: Mapping[str, Corpus | str], *, kept: Sequence[Kept]) -> Iterator[Row]:
    """In the order of their names. What two files declare under one name goes to the one that declares it so."""
    times = _times(declared.values())
    rows: dict[str, Row] = {}
    for name, one in declared.items():
        corpus = one.corpus if isinstance(one, Corpus) else name
        same = [each for each in kept if each.name == corpus]
        mine = same if times[corpus] < 2 or not isinstance(one, Corpus) else [each for each in same if each.is_of(one)]
        rows[name] = Row(name, one, tuple(mine))
    taken = {each.folder for row in rows.values() for each in row.prepared}
    for corpus in dict.fromkeys(each.name for each in kept if each.folder not in taken):
        left = tuple(each for each in kept if each.name == corpus and each.folder not in taken)
        shown = corpus if corpus not in rows else f"{corpus} (earlier)"
        rows[shown] = Row(shown, None, left)
    return (rows[name] for name in sorted(rows))


def _times(declared: Iterable[Corpus | str | None]) -> Counter[str]:
    return Counter(one.corpus for one in declared if isinstance(one, Corpus))


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("corpus", overflow="fold")
    table.add_column("source", overflow="fold")
    for column in ("vocabulary", "tokens", "size"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("prepared", overflow="fold")
    for row in rows:
        for index, one in enumerate(row.prepared):
            first = (_name(row), Text(_source(row))) if index == 0 else ("", "")
            table.add_row(*first, f"{one.vocabulary:,}", _tokens(one), num_bytes(one.num_bytes), _when(one, row=row))
        if not row.prepared:
            table.add_row(_name(row), Text(_source(row)), "", "", "", "not prepared")
    return table


def _block(row: Row) -> Iterator[RenderableType]:
    yield Text(f"{_name(row)}: {_source(row)}")
    for one in row.prepared:
        said = [f"vocabulary {one.vocabulary:,}", _tokens(one, unit=" tokens"), num_bytes(one.num_bytes)]
        yield Padding(Text(" · ".join([*said, _when(one, row=row)])), (0, 0, 0, 2))
    if not row.prepared:
        yield Padding(Text("not prepared"), (0, 0, 0, 2))


def _remarks(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if isinstance(row.declared, str):
            yield f"\n{row.name}: {row.declared}"
    for corpus, count in _times([row.declared for row in rows]).items():
        if count > 1:
            files = " and ".join(row.name for row in rows if isinstance(row.declared, Corpus) and row.corpus == corpus)
            yield f"\ncorpus {corpus} is declared {count} times, in {files}: give each a name of its own"


def _name(row: Row) -> str:
    return row.name if row.declared is None or row.corpus == row.name else f"{row.name} (corpus {row.corpus})"


def _source(row: Row) -> str:
    if row.declared is None:
        return "no longer declared so"
    return "wrong: see below" if isinstance(row.declared, str) else row.declared.source.kind


def _when(one: Kept, *, row: Row) -> str:
    is_other = isinstance(row.declared, Corpus) and one.manifest is not None and not one.is_of(row.declared)
    return f"{one.when}, of another declaration" if is_other else one.when


def _tokens(one: Kept, *, unit: str = "") -> str:
    if (manifest := one.manifest) is None:
        return "damaged"
    return number(manifest.splits.train.tokens + manifest.splits.validation.tokens) + unit


def _kept_data(one: Kept, *, row: Row) -> dict[str, Any]:
    manifest = one.manifest
    tokens = None if manifest is None else manifest.splits.train.tokens + manifest.splits.validation.tokens
    digest = None if manifest is None else manifest.digest
    where = {"folder": str(one.folder), "bytes": one.num_bytes, "prepared": one.when}
    as_declared = isinstance(row.declared, Corpus) and one.is_of(row.declared)
    return {"vocabulary": one.vocabulary, "tokens": tokens, "digest": digest, **where, "as_declared": as_declared}
