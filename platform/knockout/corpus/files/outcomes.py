"""What becomes of each row of a file: a document, or a count of why it makes none.

The invariant: nothing is repaired. A row that is not what it should be is an error that names its place, or is skipped where
the declaration says so, and then it is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from knockout.declare.problems import nearest
from knockout.declare.text_sources import Files, HuggingFace, PythonSource, TextSource
from knockout.errors import CorpusError

Document = bytes
"""A document's content, not empty."""
Reason = Literal["empty", "undecodable", "malformed", "filtered"]
REASONS: Mapping[str, str] = {
    "empty": "are empty",
    "undecodable": "are not UTF-8",
    "malformed": "are malformed",
    "filtered": "do not meet `where`",
}


@dataclass(frozen=True)
class Skipped:
    """A document that makes no row, and why."""

    reason: Reason


class Fault(Exception):
    """A row that is not what it should be."""

    def __init__(self, kind: Literal["undecodable", "malformed"], reason: str) -> None:
        self.kind: Literal["undecodable", "malformed"] = kind
        self.reason = reason
        super().__init__(reason)


@contextmanager
def within(what: str) -> Iterator[None]:
    """Say of a CorpusError what it is about."""
    try:
        yield
    except CorpusError as error:
        raise CorpusError(f"{what}: {error}") from None


def left_out(counts: Mapping[str, int]) -> str:
    """How many documents make no row, and why, in words."""
    said = [f"{count:,} documents {REASONS[reason]}" for reason, count in counts.items() if count]
    return ", ".join(said) or "its files hold no documents"


def skips(source: TextSource, *, fault: Fault) -> bool:
    """Whether a declaration lets such rows be skipped."""
    match source:
        case PythonSource():
            return fault.kind == "undecodable"
        case Files():
            return (source.undecodable if fault.kind == "undecodable" else source.malformed) == "skip"
        case HuggingFace():
            return fault.kind == "undecodable" and source.undecodable == "skip"


def refusal(fault: Fault, *, where: str) -> CorpusError:
    """The error of a row that may not be skipped."""
    things = "documents" if fault.kind == "undecodable" else "lines"
    return CorpusError(f"{where}: {fault.reason}; set `{fault.kind}: skip` to leave such {things} out")


def no_column(column: str, *, columns: Iterable[str], where: str) -> CorpusError:
    """The error of a column that is not there."""
    there = list(columns)
    named = f"there are {', '.join(map(repr, there))}" if there else "there is none"
    return CorpusError(f"{where}: no column '{column}'; {named}{nearest(column, there)}")
