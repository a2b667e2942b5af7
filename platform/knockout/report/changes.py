"""The page of a sweep: what changed, then every verdict. In Markdown, and the same as HTML.

The invariant: both are drawn from the same data, and every text in the HTML is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from markupsafe import escape

from knockout.history.changes import Change
from knockout.ledger.workspace import make_folder, write_atomically, write_json

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:left;border-bottom:1px solid #8884}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}"
)


@dataclass(frozen=True)
class Sweep:
    """What a sweep did and found."""

    title: str
    when: str
    """In words."""
    first_seed: int
    code: str
    changes: tuple[Change, ...]
    verdicts: tuple[tuple[str, str, str, str], ...]
    """Study, claim, size and outcome of each verdict."""
    missed: tuple[str, ...]
    """What came to no verdicts, and why."""
    nights: int
    """Sweeps with other seeds that the history held before."""
    repeats: str | None = None
    """When an earlier sweep had the same seeds; it is not counted."""
    untold: str | None = None
    """Why those who were to be told of it were not."""

    @property
    def flipped(self) -> bool:
        """Whether a claim flipped."""
        return any(change.kind == "flipped" for change in self.changes)

    @property
    def failed(self) -> bool:
        """Whether a claim flipped, or a study came to no verdicts. That nobody could be told of it is no failure."""
        return self.flipped or bool(self.missed)

    @property
    def outcome(self) -> str:
        """What came of it, in a sentence: what flipped by name."""
        flips = ", ".join(f"{change.name} of {change.study}" for change in self.changes if change.kind == "flipped")
        return "; ".join([*([f"flipped: {flips}"] if flips else []), _outcome(self), *_untold(self)])

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as hooks get it."""
        return {**asdict(self), "flipped": self.flipped}


def write_pages(sweep: Sweep, *, folder: Path) -> Path:
    """Write changes.md, changes.html and changes.json into a folder; returns the Markdown page's path."""
    make_folder(folder)
    write_atomically(folder / "changes.html", text=html(sweep))
    write_json(folder / "changes.json", data=sweep.to_dict())
    write_atomically(folder / "changes.md", text=markdown(sweep))
    return folder / "changes.md"


def markdown(sweep: Sweep) -> str:
    """The page as Markdown."""
    lines = [f"# {sweep.title}", "", _head(sweep), ""]
    for title, rows in _tables(sweep):
        lines += [f"## {title}", "", _line(rows[0]), _line(["---"] * len(rows[0])), *map(_line, rows[1:]), ""]
    lines += [f"- {line}" for line in (*sweep.missed, *_untold(sweep))]
    return "\n".join(lines).rstrip() + "\n"


def html(sweep: Sweep) -> str:
    """The page as HTML; it loads nothing from anywhere."""
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(sweep.title)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(sweep.title)}</h1><p>{escape(_head(sweep))}</p>",
    ]
    for title, rows in _tables(sweep):
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[1:])
        head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
        parts.append(f"<h2>{escape(title)}</h2><table><tr>{head}</tr>{body}</table>")
    listed = "".join(f"<li>{escape(line)}</li>" for line in (*sweep.missed, *_untold(sweep)))
    return "\n".join([*parts, *([f"<ul>{listed}</ul>"] if listed else []), "</html>"]) + "\n"


def _head(sweep: Sweep) -> str:
    held = f"against {sweep.nights} earlier sweep{'' if sweep.nights == 1 else 's'}" if sweep.nights else "the first sweep"
    seeds = f"seeds from {sweep.first_seed:,}"
    again = f" (the same seeds as {sweep.repeats}, which is not counted)" if sweep.repeats is not None else ""
    return f"{sweep.when}, code {sweep.code}, {seeds}{again}, {held}: {_outcome(sweep)}."


def _outcome(sweep: Sweep) -> str:
    """What changed, and what came to no verdicts; where all is missing, nothing is said to be unchanged."""
    count = len(sweep.changes)
    missed = [f"without verdicts: {len(sweep.missed)}"] if sweep.missed else []
    changed = ["1 change" if count == 1 else f"{count} changes"] if count else []
    return "; ".join([*changed, *missed]) or "nothing changed"


def _untold(sweep: Sweep) -> list[str]:
    return [f"nobody was told: {sweep.untold}"] if sweep.untold is not None else []


def _tables(sweep: Sweep) -> list[tuple[str, list[Sequence[str]]]]:
    """Each with its title; the first row is the heading."""
    found: list[tuple[str, list[Sequence[str]]]] = []
    if sweep.changes:
        rows = [(c.kind, c.study, c.sentence, "" if c.p is None else f"{c.p:.2g}") for c in sweep.changes]
        found.append(("What changed", [("change", "study", "what", "p"), *rows]))
    if sweep.verdicts:
        found.append(("Verdicts", [("study", "claim", "size", "verdict"), *sweep.verdicts]))
    return found


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
