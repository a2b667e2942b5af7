"""Prepared corpora for a terminal, and as plain data.

The invariant: no text of a corpus reaches the terminal but through `visible`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from knockout.corpus.inspection import QUANTILES, Found, Inspection, Window
from knockout.corpus.manifest import PASSED_OVER, Counts, Floors, Manifest, SplitEntry, shares_reached
from knockout.declare.generators import Generator
from knockout.report.accounts import num_bytes
from knockout.report.escaping import visible

BAR = 24
"""Longest bar of a histogram, in columns."""
LISTED = 8
"""Frequent tokens that are printed; all that were kept are in the plain data."""
LONGEST = 3


def inspection_data(found: Inspection) -> dict[str, Any]:
    """Everything that `inspection_text` shows, as plain data; text as it is, bytes that are not UTF-8 by their codes."""
    manifest = found.manifest
    return {
        "corpus": manifest.declaration.corpus,
        "vocabulary": manifest.vocabulary,
        "digest": manifest.digest,
        "folder": str(found.folder),
        "source": manifest.declaration.source.model_dump(mode="json"),
        "tokenizer": manifest.declaration.tokenizer.model_dump(mode="json"),
        "splits": {name: _split_data(manifest.split(name)) for name in ("train", "validation")},
        "counts": manifest.counts.model_dump(),
        "sources": [
            {**one.model_dump(), "share_reached": reached}
            for one, reached in zip(manifest.sources, shares_reached(manifest), strict=True)
        ],
        "floors": manifest.floors.model_dump(),
        "evaluation": manifest.evaluation.model_dump(),
        "lengths": {
            "least": found.lengths.least,
            "quantiles": {f"{share:g}": found.lengths.quantile(share) for share in QUANTILES},
            "most": found.lengths.most,
            "mean": found.lengths.total / max(1, found.lengths.documents),
            "histogram": [{"first": a, "last": b, "documents": n} for a, b, n in found.lengths.histogram()],
        },
        "longest": [_found_data(one) for one in found.longest],
        "frequent_tokens": [{"token": f.token, "text": _text(f.content), "count": f.count} for f in found.frequent],
        "tokens_that_never_occur": found.never,
        "windows": [{"split": w.split, "start": w.start, "pieces": list(map(_text, w.pieces))} for w in found.windows],
    }


def inspection_text(found: Inspection) -> RenderableType:
    """What is in a prepared corpus, for any width."""
    manifest = found.manifest
    return Group(
        _facts(found),
        _heading("splits"),
        _splits({"train": manifest.splits.train, "validation": manifest.splits.validation}),
        *_sources(manifest),
        _heading("lengths of documents, in tokens"),
        _quantiles(found),
        _histogram(found),
        _heading(f"longest documents ({LONGEST} of {found.lengths.documents:,})"),
        *(_longest(one) for one in found.longest[:LONGEST]),
        _heading("most frequent tokens"),
        _frequent(found),
        *(part for window in found.windows for part in _window(window)),
    )


def _facts(found: Inspection) -> Table:
    manifest, declared = found.manifest, found.manifest.declaration
    lines = {
        "corpus": f"{declared.corpus}, with a vocabulary of {manifest.vocabulary:,}",
        "source": declared.source.kind,
        "tokenizer": f"{declared.tokenizer.kind}; {found.never:,} of its tokens never occur",
        "left out": _left_out(manifest.counts),
        "duplicates": _duplicates(manifest),
        "exam": f"{manifest.evaluation.tokens:,} tokens of {manifest.evaluation.split}",
        "floors": _floors(manifest.floors),
        "digest": manifest.digest,
        "folder": str(found.folder),
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, line in lines.items():
        table.add_row(name, Text(line))
    return table


def remarks(manifest: Manifest) -> list[str]:
    """What someone who prepared a corpus would not expect of it, a line each: documents left out, files passed over, text
    left over."""
    skipped = _left_out(manifest.counts.model_copy(update=dict.fromkeys(PASSED_OVER, 0)), always=())
    passed = {name: n for name, n in manifest.counts.model_dump(include=set(PASSED_OVER)).items() if n}
    said = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in passed.items())
    left = ", ".join(
        f"{one.left_documents:,} documents of {one.name} ({num_bytes(one.left_bytes)})"
        for one in manifest.sources
        if one.left_documents
    )
    lines = {"left out": skipped, "passed over": said, "left over to keep the shares": left}
    return [f"{what}: {line}" for what, line in lines.items() if line]


def _duplicates(manifest: Manifest) -> str:
    drawn = isinstance(manifest.declaration.source, Generator)
    where = "each on a side of its own, as they were drawn" if drawn else "kept on the side of the first"
    return f"{manifest.counts.duplicates:,} exact copies, {where}"


def _sources(manifest: Manifest) -> Iterator[RenderableType]:
    """What a mixture holds of each of its sources."""
    if not manifest.sources:
        return
    yield _heading("sources of the mixture")
    table = _table("", "share", "reached", "documents", "left over")
    for one, reached in zip(manifest.sources, shares_reached(manifest), strict=True):
        table.add_row(one.name, f"{one.share:.1%}", f"{reached:.1%}", f"{one.documents:,}", f"{one.left_documents:,}")
    yield table


def _left_out(counts: Counts, *, always: tuple[str, ...] = ("empty", "undecodable")) -> str:
    words = {"undecodable": "not UTF-8", "near_duplicates": "near or exact copies"}
    found = {name: n for name, n in counts.model_dump().items() if name != "duplicates" and (n or name in always)}
    return ", ".join(f"{n:,} {words.get(name, name.replace('_', ' '))}" for name, n in found.items())


def _floors(floors: Floors) -> str:
    said = f"unigram {floors.unigram:.4f}, bigram {floors.bigram:.4f}"
    if floors.entropy_rate is not None:
        said += f", entropy rate {floors.entropy_rate:.4f}"
    return f"{said} nats per token"


def _heading(text: str) -> RenderableType:
    return Padding(Text(text, style="bold"), (1, 0, 0, 0))


def _splits(splits: dict[str, SplitEntry]) -> Table:
    table = _table("", *splits)
    rows: dict[str, list[str]] = {
        "documents": [f"{side.documents:,}" for side in splits.values()],
        "tokens": [f"{side.tokens:,}" for side in splits.values()],
        "text": [num_bytes(side.raw_bytes) for side in splits.values()],
        "bytes per token": [f"{_bytes_per_token(side):.3f}" for side in splits.values()],
        "shards": [f"{len(side.shards):,}" for side in splits.values()],
    }
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def _bytes_per_token(side: SplitEntry) -> float:
    """Bytes of text for each token but end-of-text."""
    return side.raw_bytes / max(1, side.tokens - side.documents)


def _quantiles(found: Inspection) -> Text:
    lengths = found.lengths
    said = [f"least {lengths.least:,}", *(f"{share:.0%} {lengths.quantile(share):,}" for share in QUANTILES)]
    mean = lengths.total / max(1, lengths.documents)
    return Text(" · ".join([*said, f"most {lengths.most:,}", f"mean {mean:,.1f}"]))


def _histogram(found: Inspection) -> Table:
    rows = found.lengths.histogram()
    highest = max((documents for *_, documents in rows), default=1)
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="crop")
    table.add_column(justify="right", no_wrap=True)
    for first, last, documents in rows:
        bar = "█" * round(BAR * documents / highest) or ("▏" if documents else "")
        table.add_row(f"{first:,} – {last:,}", bar, f"{documents:,}")
    return table


def _longest(one: Found) -> RenderableType:
    beginning = Text(f"{visible(one.beginning)} …", overflow="ellipsis", no_wrap=True)
    return Group(Text(f"{one.tokens:,} tokens in {one.split}, from token {one.start:,}"), Padding(beginning, (0, 0, 0, 2)))


def _frequent(found: Inspection) -> Table:
    total = found.manifest.splits.train.tokens + found.manifest.splits.validation.tokens
    table = _table("token", "text", "times", "share")
    table.columns[1].justify, table.columns[1].overflow = "left", "fold"
    for one in found.frequent[:LISTED]:
        ends = one.token == found.manifest.end_of_text
        text = Text("end of text", style="dim") if ends else Text(f"'{visible(one.content)}'")
        table.add_row(f"{one.token:,}", text, f"{one.count:,}", f"{one.count / total:.2%}")
    return table


def _window(window: Window) -> Iterator[RenderableType]:
    yield _heading(f"{window.split}, from token {window.start:,}")
    for number, piece in enumerate(window.pieces):
        if number:
            yield Rule("end of document", style="dim")
        yield Text(visible(piece))


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    return table


def _split_data(side: SplitEntry) -> dict[str, Any]:
    data = side.model_dump(mode="json")
    return data | {"bytes_per_token": _bytes_per_token(side)}


def _found_data(one: Found) -> dict[str, Any]:
    return {"tokens": one.tokens, "split": one.split, "start": one.start, "beginning": _text(one.beginning)}


def _text(content: bytes) -> str:
    return content.decode("utf-8", errors="backslashreplace")
