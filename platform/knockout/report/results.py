"""The log of results, `ablations/RESULTS.md`: one section for each study, size and day, from reports' facts.

The invariant: the text is a function of the facts and of the sections that were there. A section is replaced only by one
of the same study, size and day; of a study and size only the newest is not called superseded; and no path of a machine
appears in one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from knockout.errors import WorkspaceError
from knockout.ledger.workspace import write_atomically
from knockout.report import since, words
from knockout.report.reading import how_to_read
from knockout.report.searches import num_pruned, pruning_check, saving, settings
from knockout.report.spent import SizeReport, searches, spent
from knockout.report.trained import cost

HEAD = """# Results

What the studies of this folder gave, newest first: a section for each study, size and day, refuted and inconclusive claims
included. `knockout results --write` writes it from a workspace's ledger and replaces sections of the same study, size and
day; what stands above the first section stays. A section of another day than the one before says what changed since, and
what differs that may be why.
"""
Key = tuple[str, str, str]
"""Study, size and date."""
_MARK = re.compile(r"^<!-- knockout results · (?P<study>\S+) · (?P<size>\S+) · (?P<date>\d{4}-\d\d-\d\d) -->$", re.MULTILINE)
_HEADING = re.compile(r"^(## .*?)(?: \(superseded by \d{4}-\d\d-\d\d\))?$", re.MULTILINE)
_PATH = re.compile(r"(?<![\w.:/])/(?:[\w.+-]+/)+([\w.+-]+)")


@dataclass(frozen=True)
class Section:
    """What a study gave at a size, as it was concluded on a day."""

    study: str
    size: str
    date: str
    """In universal time: 2026-11-29."""
    text: str
    """Everything after the marker, in Markdown."""

    @property
    def key(self) -> Key:
        """Sections of one key replace each other."""
        return self.study, self.size, self.date


def section(facts: Mapping[str, Any], *, size: str, date: str) -> Section:
    """What a report says of one size; claims that span several sizes stand at the report's last."""
    study = facts["study"]["name"]
    parts = [
        f"## {date} · {study} · {size}",
        _question(facts["study"]),
        *_warnings(facts, size=size),
        _table(verdicts := _verdicts(facts, size=size)),
        how_to_read(verdicts),
        "\n".join(_sentence(verdict) for verdict in verdicts),
        *_checks(facts, size=size),
        "\n".join(_circumstances(facts, size=size)),
    ]
    return Section(study, size, date, "\n\n".join(part for part in parts if part) + "\n")


def show(sections: Sequence[Section]) -> str:
    """The sections alone, as the log has them."""
    return "\n".join(one.text for one in _ordered(sections))


def write_log(path: Path, *, sections: Sequence[Section], declared: Mapping[Key, str] | None = None) -> None:
    """Write sections into a log, which is made if missing, in one step; `declared` as for `merge`.

    Raises:
        WorkspaceError: the file cannot be read or written.
    """
    try:
        before = path.read_text("utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise WorkspaceError(f"{path} cannot be read: {error}") from None
    write_atomically(path, text=merge(before, sections=sections, declared=declared))


def merge(text: str | None, *, sections: Sequence[Section], declared: Mapping[Key, str] | None = None) -> str:
    """The log with these sections in it; without a log, a new one. Newest first, each day by study and size.

    `declared` are the studies' declarations, in YAML, behind sections new and old, as far as they are known.
    """
    head, known = _read(text) if text is not None else (HEAD, [])
    merged = _ordered({one.key: one for one in [*known, *sections]}.values())
    written = {one.key for one in sections}
    told = [_in_row(one, among=merged, written=written, declared=declared or {}) for one in merged]
    return "\n".join([head.rstrip("\n") + "\n", *(f"{_mark(one)}\n{one.text}" for one in told)])


def _in_row(one: Section, *, among: Sequence[Section], written: Collection[Key], declared: Mapping[Key, str]) -> Section:
    """A section that says which one of its study and size came after it, and what changed since the one before it."""
    row = [other for other in among if (other.study, other.size) == (one.study, one.size)]
    place = row.index(one)
    mark = f" (superseded by {row[0].date})" if place else ""
    text = _HEADING.sub(lambda heading: heading[1] + mark, one.text, count=1)
    before = row[place + 1] if place + 1 < len(row) else None
    if before is not None and {one.key, before.key} & {*written}:
        texts = declared.get(before.key), declared.get(one.key)
        said = _plain(since.since(one.text, before=before.text, date=before.date, declared=texts))
        first, gap, rest = since.without_since(text).partition("\n\n")
        text = f"{first}\n\n{said}{gap}{rest}"
    return replace(one, text=text)


def _ordered(sections: Iterable[Section]) -> list[Section]:
    """Newest first, each day by study and size."""
    by_name = sorted(sections, key=lambda one: (one.study, one.size))
    return sorted(by_name, key=lambda one: one.date, reverse=True)


def _read(text: str) -> tuple[str, list[Section]]:
    """What stands above the first section, and the sections."""
    marks = list(_MARK.finditer(text))
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    sections = [
        Section(mark["study"], mark["size"], mark["date"], text[mark.end() : end].strip("\n") + "\n")
        for mark, end in zip(marks, ends, strict=True)
    ]
    return text[: marks[0].start()] if marks else text, sections


def _mark(one: Section) -> str:
    return f"<!-- knockout results · {one.study} · {one.size} · {one.date} -->"


def _question(study: Mapping[str, Any]) -> str:
    source = study["source"]
    stands = f" ({source['document']}, section {source['section']})" if source else ""
    return _plain(f"{study['question']}{stands}")


def _verdicts(facts: Mapping[str, Any], *, size: str) -> list[Mapping[str, Any]]:
    last = size == facts["sizes"][-1]
    return [one for one in facts["verdicts"] if one["size"] == size or (last and _spans(one, facts=facts))]


def _spans(verdict: Mapping[str, Any], *, facts: Mapping[str, Any]) -> bool:
    """Whether a verdict is over several sizes together."""
    return verdict["size"] not in facts["sizes"]


def _table(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """The verdicts in numbers; a column for the source where a claim names one."""
    sourced = any(verdict["source"] for verdict in verdicts)
    heads = ["claim", "verdict", "effect [interval]", "p", "seeds", "cost", *(["source"] if sourced else [])]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for verdict in verdicts:
        source = [verdict["source"] or words.NONE] if sourced else []
        lines.append(_line([f"`{verdict['claim']}`", f"**{verdict['outcome']}**", *_numbers(verdict), *source]))
    return "\n".join(lines)


def _numbers(verdict: Mapping[str, Any]) -> list[str]:
    """Effect with interval, p, seeds and cost."""
    p, seconds = verdict["p"], verdict["cost_seconds"]
    return [words.effect(verdict), words.number(p, 2), str(verdict["num_seeds"]), words.duration(seconds)]


def _sentence(verdict: Mapping[str, Any]) -> str:
    note = f" *{verdict['note']}.*" if verdict["note"] else ""
    says = verdict["says"].rstrip(".")
    return _plain(f"- `{verdict['claim']}` {says}. **{verdict['outcome'].capitalize()}**: {verdict['reason']}.{note}")


def _warnings(facts: Mapping[str, Any], *, size: str) -> Iterator[str]:
    """What stands above the verdicts: runs without a result, a baseline that learnt too little, a failed control."""
    if unfinished := facts["study"].get("unfinished"):
        yield _plain(f"> **Unfinished**: {unfinished}")
    for gate in facts["competence"]:
        if gate["size"] == size and not gate["met"]:
            yield _plain(f"> **Not competent**: {gate['sentence']}")
    for control in facts.get("controls", ()):
        if control["size"] == size and control["passed"] is False:
            yield _plain(f"> **Control failed**: {control['sentence']}")
    for said in _fairness(facts, size=size, level="serious"):
        yield _plain(f"> **Fairness**: {said}")


def _checks(facts: Mapping[str, Any], *, size: str) -> Iterator[str]:
    """What was checked beside the claims, and passed or is only to be known."""
    gates = [gate["sentence"] for gate in facts["competence"] if gate["size"] == size and gate["met"]]
    controls = [one["sentence"] for one in facts.get("controls", ()) if one["size"] == size and one["passed"] is not False]
    for title, said in (
        ("Competence", gates),
        ("Controls", controls),
        ("Fairness", _fairness(facts, size=size, level="note")),
    ):
        if said:
            yield _plain(f"{title}: {'; '.join(said)}.")


def _fairness(facts: Mapping[str, Any], *, size: str, level: str) -> list[str]:
    """What may favour a variant, at that size or at all."""
    return [one["sentence"] for one in facts.get("fairness", ()) if one["level"] == level and one["size"] in (size, None)]


def _circumstances(facts: Mapping[str, Any], *, size: str) -> Iterator[str]:
    """Corpus, seeds, search, cost, machine, versions, revision, declaration, and the command."""
    study, machine = facts["study"], dict(facts["machine"])
    report = SizeReport(facts, size)
    sizes = facts["sizes"] if any(_spans(verdict, facts=facts) for verdict in _verdicts(facts, size=size)) else [size]
    whole = spent(SizeReport(facts, one) for one in sizes)
    parts = [machine.pop("processor", None), f"{machine.pop('cores', '?')} cores", *map(str, machine.values())]
    yield f"- Corpus: {study['corpus']} (`{facts['manifest_digest'][:16]}`); seeds {', '.join(map(str, study['seeds']))}"
    if found := searches(report):
        yield _plain(f"- Tuned: {'; '.join(map(_search, found))}")
    if tune := study.get("tune"):
        yield _plain(f"- Search: {settings(tune)}")
    if checked := pruning_check(found):
        yield _plain(f"- Pruning: {checked}; their training is part of the cost")
    pruned = f"; {saving(found)}" if num_pruned(found) else ""
    yield f"- Cost: {cost(whole)}, {words.number(whole.flops)} FLOPs{pruned}"
    yield _plain(f"- Machine: {', '.join(part for part in parts if part)}")
    yield f"- Versions: {', '.join(f'{name} {version}' for name, version in facts['versions'].items())}"
    if revision := facts.get("revision"):
        yield f"- Revision: `{revision}`"
    yield f"- Declaration: `{since.digest(study['declaration'])}`"
    yield f"- Again: `{facts['command']}`"


def _search(search: Mapping[str, Any]) -> str:
    """`no-residual to learning_rate 0.003 (at the low end of what was searched)`."""
    ends = search["edges"]
    chosen = [
        f"{path} {value:.3g}{f' (at the {ends[path]} end of what was searched)' if path in ends else ''}"
        for path, value in search["chosen"].items()
    ]
    return f"{search['variant']} to {', '.join(chosen)}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_plain(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _plain(text: str) -> str:
    """One line that Markdown shows as it is, with files named instead of paths."""
    return _PATH.sub(r"\1", " ".join(text.split())).replace("<", "&lt;")
