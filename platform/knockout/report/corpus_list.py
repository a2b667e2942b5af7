"""The corpora that are declared and those that are prepared, as one list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from knockout.corpus.kept import Kept
from knockout.declare.corpus import Corpus
from knockout.report.accounts import num_bytes, number


def list_table(declared: Mapping[str, Corpus | str], *, kept: Sequence[Kept]) -> Table:
    """One row a corpus, or one for each time that it is prepared; a declaration that is wrong stands as what is wrong."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("corpus", no_wrap=True)
    table.add_column("source", overflow="fold")
    for column in ("vocabulary", "tokens", "size"):
        table.add_column(column, justify="right", no_wrap=True)
    for name in sorted({*declared, *(one.name for one in kept)}):
        prepared = [one for one in kept if one.name == name]
        source = Text(_source(declared.get(name)))
        for index, one in enumerate(prepared):
            first = (name, source) if index == 0 else ("", "")
            table.add_row(*first, f"{one.vocabulary:,}", _tokens(one), num_bytes(one.num_bytes))
        if not prepared:
            table.add_row(name, source, "", "not prepared", "")
    return table


def list_data(declared: Mapping[str, Corpus | str], *, kept: Sequence[Kept]) -> list[dict[str, Any]]:
    """The same as plain data."""
    return [
        {
            "corpus": name,
            "declaration": one.model_dump(mode="json") if isinstance(one := declared.get(name), Corpus) else None,
            "problem": one if isinstance(one, str) else None,
            "prepared": [_kept_data(each) for each in kept if each.name == name],
        }
        for name in sorted({*declared, *(each.name for each in kept)})
    ]


def _kept_data(one: Kept) -> dict[str, Any]:
    manifest = one.manifest
    tokens = None if manifest is None else manifest.splits.train.tokens + manifest.splits.validation.tokens
    digest = None if manifest is None else manifest.digest
    where = {"folder": str(one.folder), "bytes": one.num_bytes}
    return {"vocabulary": one.vocabulary, "tokens": tokens, "digest": digest, **where}


def _source(declared: Corpus | str | None) -> str:
    if declared is None:
        return "no longer declared"
    return declared.splitlines()[0] if isinstance(declared, str) else declared.source.kind


def _tokens(one: Kept) -> str:
    if (manifest := one.manifest) is None:
        return "damaged"
    return number(manifest.splits.train.tokens + manifest.splits.validation.tokens)
