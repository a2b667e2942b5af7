"""Where text comes from: files, tables, a data set of the Hugging Face hub, or a mixture of them.

The invariant: a declaration says all that decides what a document's text is; what it does not say is left as it was written.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from knockout.declare.base import Conflict, Declaration, Name, conflicts
from knockout.declare.conditions import Column, Condition, asked_of_columns

SCHEMES = ("s3://", "gs://", "hf://", "https://", "http://")
"""How the address of a file that is not on this machine begins."""

Format = Literal["text", "jsonl", "parquet", "arrow"]
ENDINGS: dict[Format, tuple[str, ...]] = {
    "text": ("",),
    "jsonl": (".jsonl", ".jsonl.gz", ".jsonl.zst"),
    "parquet": (".parquet",),
    "arrow": (".arrow",),
}
"""What a file's name ends in by what it holds; for text anything else."""

Path_ = Annotated[str, StringConstraints(min_length=1)]
Policy = Literal["error", "skip"]
Unicode = Literal["none", "nfc", "nfd", "nfkc", "nfkd"]


def format_of(name: str) -> Format:
    """What a file holds by how its name, path or address ends, in either case."""
    name = (name.split("?")[0] if "://" in name else name).lower()
    for form, ends in ENDINGS.items():
        if form != "text" and name.endswith(ends):
            return form
    return "text"


def _format_of_pattern(pattern: str) -> Format | None:
    """The same of all files that a glob may name; None where its end leaves that open."""
    suffix = PurePosixPath(pattern).suffix
    return format_of(pattern) if suffix[1:].isalnum() else None


def _several(value: object) -> object:
    """A single path as one of several."""
    match value:
        case str():
            return (value,)
        case list():
            return tuple(value)
        case _:
            return value


class PythonSource(Declaration):
    """The running interpreter's standard library, test folders included: one document a file.

    Files that are not UTF-8 (a few of the library's own tests) are skipped and counted.
    """

    kind: Literal["python_source"] = "python_source"


class Reading(Declaration):
    """How a document's text is read."""

    where: Condition | None = None
    """Tables and JSON lines: the rows that are read; without it, all."""
    unicode: Unicode = "none"
    """The normalisation form that a text is brought to (Unicode Standard Annex 15), or none."""
    undecodable: Policy = "error"
    """A document that is not UTF-8: an error, or skipped and counted."""

    @model_validator(mode="after")
    def _one_type_a_column(self) -> Reading:
        asked = [] if self.where is None else list(asked_of_columns(self.where))
        first = {part.column: part.compared for part in reversed(asked) if part.compared != "any"}
        for part in asked:
            if part.compared not in ("any", first.get(part.column)):
                rule = f"column '{part.column}' is compared with {first[part.column]} and with {part.compared}"
                conflicts(type(self).__name__, [("where", part.relation, rule)])
        return self


class Files(Reading):
    """Text files, JSON lines, Parquet or Arrow, on this machine or by URL."""

    kind: Literal["files"] = "files"
    paths: Annotated[
        tuple[Path_, ...], Field(min_length=1), BeforeValidator(_several, json_schema_input_type=Path_ | tuple[Path_, ...])
    ]
    """One or several files, folders or globs (`**` descends; case counts, hidden files are passed over), seen from the
    declaration's folder or from ~; or s3://, gs://, hf://datasets/, https://."""
    format: Format | None = None
    """What the files hold, text and JSON lines also as .gz and .zst; without it, what their names end in (.jsonl, .parquet,
    .arrow, and text for all others), and all alike."""
    column: Column = "text"
    """JSON lines, Parquet and Arrow: the field that holds a document's text."""
    separator: Annotated[str, StringConstraints(min_length=1, max_length=1000)] | None = None
    """Text: a file is cut into documents at each occurrence; none makes each file one document."""
    malformed: Policy = "error"
    """JSON lines: a line that is no object, or whose text is not text: an error, or skipped and counted."""

    @model_validator(mode="after")
    def _settings_fit_the_format(self) -> Files:
        conflicts("Files", [*self._for_text_only(), *self._for_tables_only(), *self._addresses()])
        return self

    @property
    def _known(self) -> Format | None:
        """The format that is given, or that the paths leave no doubt of."""
        if self.format is not None:
            return self.format
        likely: set[Format | None] = {_format_of_pattern(path) for path in self.paths}
        return likely.pop() if len(likely) == 1 else None

    def _for_text_only(self) -> list[Conflict]:
        if self.separator is None:
            return []
        if self._known not in ("text", None):
            return [("separator", self.separator, f"only text has one; format is {self._known}")]
        rule = "a document's lines end in a line feed, whatever its file's do: write \\n for the end of a line"
        return [("separator", self.separator, rule)] if "\r" in self.separator else []

    def _for_tables_only(self) -> list[Conflict]:
        found: list[Conflict] = []
        known = self._known
        if known == "text" and self.column != "text":
            found.append(("column", self.column, "text has no columns; format is text (or jsonl, parquet, arrow)"))
        if known == "text" and self.where is not None:
            found.append(("where", self.where.relation, "text has no columns to choose by; format is text"))
        if known not in ("jsonl", None) and self.malformed != "error":
            found.append(("malformed", self.malformed, f"only a line of JSON can be so; format is {known}"))
        return found

    def _addresses(self) -> list[Conflict]:
        return [
            (f"paths.{index}", path, f"is not an address that can be read; those begin with {', '.join(SCHEMES)}")
            for index, path in enumerate(self.paths)
            if "://" in path and not path.startswith(SCHEMES)
        ]


class HuggingFace(Reading):
    """A data set of the Hugging Face hub that is stored as Parquet."""

    kind: Literal["hugging_face"] = "hugging_face"
    dataset: str
    """Its name on the hub: owner/name, or name."""
    config: str | None = None
    """Which of its configurations; without it, the only or the default one."""
    split: str = "train"
    """Which of its splits is read; a validation split of the corpus' own is kept from it."""
    revision: str = "main"
    """Branch, tag or commit."""
    column: Column = "text"
    """The field that holds a document's text."""

    @model_validator(mode="after")
    def _names_are_names(self) -> HuggingFace:
        asked = {
            "dataset": (r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", "must be owner/name, as on the hub"),
            "config": (r"[^/*?\[\]@]+", "must be the name of a configuration"),
            "split": (r"\w+(\.\w+)*", "must be the name of a split, as in train"),
            "revision": (r"[\w.][\w./-]*", "must be a branch, a tag or a commit"),
        }
        said = {"dataset": self.dataset, "config": self.config, "split": self.split, "revision": self.revision}
        wrong = [name for name, value in said.items() if value is not None and not re.fullmatch(asked[name][0], value)]
        conflicts("HuggingFace", [(name, said[name], asked[name][1]) for name in wrong])
        return self


TextSource = Annotated[PythonSource | Files | HuggingFace, Field(discriminator="kind")]


class Share(Declaration):
    """One source of a mixture."""

    name: Name
    """What it is called in reports."""
    share: Annotated[float, Field(gt=0.0, le=1e9)]
    """How much of the mixture's bytes it makes up, in proportion to the others' shares."""
    source: TextSource
    """Where its documents come from."""


class Mixture(Declaration):
    """Several sources in given shares: the scarcest is taken whole, the others are thinned, and nothing is repeated."""

    kind: Literal["mixture"] = "mixture"
    sources: Annotated[tuple[Share, ...], Field(min_length=2, max_length=1000)]
    """The sources and their shares."""

    @model_validator(mode="after")
    def _names_differ(self) -> Mixture:
        names = [part.name for part in self.sources]
        repeated = [index for index, name in enumerate(names) if name in names[:index]]
        rule = "another source of the mixture has this name"
        conflicts("Mixture", [(f"sources.{index}.name", names[index], rule) for index in repeated])
        return self
