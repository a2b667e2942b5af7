"""What a file holds, where its declaration does not say: told by how its name ends, and checked by its first bytes.

The invariant: the files of a source are of one format. Tables that are declared, or taken, as text are refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from pydantic import ValidationError

from knockout.declare.text_sources import Files, Format, TextSource, format_of
from knockout.errors import CorpusError

FEW = 3
"""Names of files that a message lists."""
WHAT = {"text": "text", "jsonl": "JSON lines", "parquet": "Parquet", "arrow": "Arrow"}


def with_format(source: TextSource, *, name: str | None) -> TextSource:
    """The source with its format, where it does not say it, as the name of one of its files ends; None: it has no rows."""
    if isinstance(source, Files) and source.format is None and name is not None:
        return source.model_copy(update={"format": format_of(name)})
    return source


def check_one_format(source: Files, *, names: Sequence[str]) -> None:
    """Refuse a source that does not say its format and whose files are of several, or whose settings do not suit theirs.

    Raises:
        CorpusError: so it is.
    """
    if source.format is not None:
        return
    by_format: dict[Format, list[str]] = {}
    for name in names:
        by_format.setdefault(format_of(name), []).append(name)
    if len(by_format) > 1:
        found = "; ".join(f"{WHAT[form]} ({_few(those)})" for form, those in by_format.items())
        raise CorpusError(
            f"source.paths: files of several formats, by their names: {found}; say which with `format`, or name only those "
            "that are meant"
        )
    [form] = by_format
    try:
        Files.model_validate(source.model_dump() | {"format": form})
    except ValidationError as error:
        first = error.errors()[0]
        raise CorpusError(f"source.{'.'.join(map(str, first['loc']))}: {first['msg']}, by the names of its files") from None


def _few(names: Sequence[str]) -> str:
    said = ", ".join(PurePath(name).name for name in names[:FEW])
    return f"{said} and {len(names) - FEW:,} more" if len(names) > FEW else said
