"""What a section of the log of results says otherwise than the one before it, and what differs that may be why.

The invariant: verdicts, tuned values, search, versions and revision are compared as the two sections print them; only what a
declaration changed is looked up, in the declarations themselves, where these are known.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from knockout.declare.document import parse_document
from knockout.ledger.identity import difference

_ROW = re.compile(r"^\| `(?P<claim>[^`]+)` \| \*\*(?P<outcome>[^*]+)\*\* \|", re.MULTILINE)
_SINCE = re.compile(r"^Since \d{4}-\d\d-\d\d: .*\n\n", re.MULTILINE)
_REMARK = re.compile(r" \([^)]*\)")
_FEW = 6
"""So many settings of a declaration are named."""
_SHORT = 24
"""Characters of a value that is shown."""
NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class Told:
    """What a section prints, to be compared."""

    outcomes: dict[str, str]
    """By claim."""
    tuned: dict[str, str]
    """By variant and setting."""
    versions: dict[str, str]
    search: str | None
    revision: str | None
    declaration: str | None
    """Its digest."""


def read(text: str) -> Told:
    """What a section's text says; whatever it lacks is empty or None."""
    tuned = (pair for part in _REMARK.sub("", _line(text, name="Tuned") or "").split("; ") if part for pair in _chosen(part))
    versions = (part.partition(" ") for part in (_line(text, name="Versions") or "").split(", ") if part)
    return Told(
        outcomes={row["claim"]: row["outcome"] for row in _ROW.finditer(text)},
        tuned=dict(tuned),
        versions={name: version for name, _, version in versions},
        search=_line(text, name="Search"),
        revision=_line(text, name="Revision"),
        declaration=_line(text, name="Declaration"),
    )


def without_since(text: str) -> str:
    """A section's text without what it says of the one before."""
    return _SINCE.sub("", text)


def since(now: str, *, before: str, date: str, declared: tuple[str | None, str | None] = (None, None)) -> str:
    """`Since 2026-11-29: ...`, one line: what a section's text says otherwise than the text of the section of that date.

    `declared` are the declarations then and now, in YAML, as far as they are known.
    """
    new, old = read(now), read(before)
    verdicts = list(_changed(old.outcomes, new.outcomes, mark="`"))
    searched = list(_changed(old.tuned, new.tuned, mark=""))
    said = [
        ", ".join(verdicts) or "no verdict changed",
        *([f"tuned: {', '.join(searched)}" if searched else "no tuned value changed"] if old.tuned or new.tuned else []),
        _declaration(old.declaration, new.declaration, declared=declared),
        *([_one("search", old.search, new.search)] if old.tuned or new.tuned else []),
        _versions(old.versions, new.versions),
        _one("revision", old.revision, new.revision),
    ]
    return f"Since {date}: {'; '.join(said)}."


def digest(declaration: str) -> str:
    """Twelve hex digits that change with what a study declares, whatever the comments say."""
    return hashlib.sha256(json.dumps(_data(declaration), sort_keys=True).encode()).hexdigest()[:12]


def _line(text: str, *, name: str) -> str | None:
    """The value of the list entry of that name."""
    found = re.search(rf"^- {name}: (.*)$", text, re.MULTILINE)
    return found[1].strip() if found else None


def _chosen(part: str) -> Iterator[tuple[str, str]]:
    """`post to learning_rate 0.003, batch 8` as pairs: what of which variant, and its value."""
    variant, _, settings = part.partition(" to ")
    for setting in settings.split(", "):
        path, _, value = setting.rpartition(" ")
        yield f"{variant} {path}", value


def _changed(old: Mapping[str, str], new: Mapping[str, str], *, mark: str) -> Iterator[str]:
    """`T7 inconclusive → supported` for each that changed, is new, or is gone."""
    for name in dict.fromkeys([*new, *old]):
        title = f"{mark}{name}{mark}"
        match old.get(name), new.get(name):
            case None, now:
                yield f"{title} is new, {now}"
            case before, None:
                yield f"{title} is gone, was {before}"
            case before, now if before != now:
                yield f"{title} {before} → {now}"


def _declaration(old: str | None, new: str | None, *, declared: tuple[str | None, str | None]) -> str:
    before, now = declared
    if before is not None and now is not None:
        paths = list(_settings(before, now))
        more = [f"and {len(paths) - _FEW} more"] if len(paths) > _FEW else []
        return f"declaration: {', '.join([*paths[:_FEW], *more])}" if paths else "same declaration"
    return _one("declaration", old, new)


def _settings(before: str, now: str) -> Iterator[str]:
    """The settings in which two declarations differ, with both values where these are short."""
    for path, values in difference(_by_claim(_data(before)), _by_claim(_data(now))).items():
        shown = ["none" if value is None else str(value) for value in values]
        yield f"{path} {' → '.join(shown)}" if all(len(value) <= _SHORT for value in shown) else path


def _by_claim(data: Mapping[str, Any]) -> dict[str, Any]:
    """A declaration with its claims by id, so that one which moved is the same."""
    claims = data.get("claims", [])
    return {**data, "claims": {claim["id"]: claim for claim in claims}}


def _data(declaration: str) -> dict[str, Any]:
    return dict(parse_document(declaration, file="study").data)


def _versions(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    if not (old and new):
        return f"versions {NOT_RECORDED}"
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name} {old.get(name, 'none')} → {new.get(name, 'none')}" for name in changed) or "same versions"


def _one(name: str, old: str | None, new: str | None) -> str:
    match old, new:
        case None, None:
            return f"{name} {NOT_RECORDED}"
        case None, now:
            return f"{name} {NOT_RECORDED} then, now {now}"
        case then, None:
            return f"{name} {then} then, {NOT_RECORDED} now"
    return f"same {name}" if old == new else f"{name} {old} → {new}"
