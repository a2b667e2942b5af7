"""From files of claims to claims with the architectures that they are about.

The invariant: a claim that is loaded can be decided; a name, a setting or a number that makes no sense is reported here,
at the line where it stands. These files lie in ablations/claims/, apart from the studies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from knockout import project
from knockout.declare.architecture import Architecture
from knockout.declare.calculation import (
    CalculatedClaim,
    ClaimsFile,
    Count,
    Difference,
    Identity,
    Patch,
    Ratio,
    Share,
    Worked,
)
from knockout.declare.claimed import stands_for
from knockout.declare.document import Document, Path_, read_document
from knockout.declare.load import load_preset, validate
from knockout.declare.problems import nearest
from knockout.declare.requirements import unmet
from knockout.declare.settings import FIELDS, Settings, defaults
from knockout.errors import DeclarationError, InputError, Problem, quoted

FOLDER = "ablations/claims"

Kind = Literal["count", "identity"]
"""How a claim is decided: by arithmetic on a declaration, or on tensors."""

SMALL = {"width": 32, "depth": 3, "heads": 4, "context": 12, "vocabulary": 29, "init": {"kind": "gpt2", "std": 32**-0.5}}
"""The network that identities are checked on: weights at unit scale, so that every effect shows."""


@dataclass(frozen=True)
class LoadedClaim:
    """A claim and the architectures that it compares: none, one, or two."""

    claim: CalculatedClaim
    architectures: tuple[Architecture, ...]
    title: str | None = None
    """Of the document that makes the claim."""

    @property
    def kind(self) -> Kind:
        """How it is decided."""
        return "identity" if isinstance(self.claim.expect, Identity | Worked) else "count"


def load_claims(files: Sequence[Path] | None = None) -> tuple[LoadedClaim, ...]:
    """Every claim of every file, by default of those in ablations/claims/, file by file.

    Raises:
        DeclarationError: with every problem of every file.
        InputError: a file cannot be read.
    """
    found: list[Problem] = []
    loaded: list[LoadedClaim] = []
    seen: set[str] = set()
    titles: dict[str, str] = {}
    for file in _shipped() if files is None else files:
        try:
            document = read_document(file)
            file_of_claims = validate(document, model=ClaimsFile)
        except DeclarationError as error:
            found += error.problems
            continue
        found += _retitled(file_of_claims.documents, titles=titles, document=document)
        for i, claim in enumerate(file_of_claims.claims):
            if claim.id in seen:
                found.append(_problem(document, ("claims", i, "id"), f"'{claim.id}' is another claim's id already"))
            seen.add(claim.id)
            loaded += _load(claim, document=document, path=("claims", i, "expect"), found=found)
    if found:
        raise DeclarationError(found)
    return tuple(replace(item, title=titles.get(item.claim.document)) for item in loaded)


def is_claims_file(path: Path) -> bool:
    """Whether a file that can be read holds claims for calculation, and no study.

    Raises:
        DeclarationError: it is no YAML mapping.
        InputError: it cannot be read.
    """
    data = read_document(path).data
    return "study" not in data and ("claims" in data or path.resolve().parent.match(f"*/{FOLDER}"))


def titles_of(claims: Sequence[LoadedClaim]) -> dict[str, str]:
    """The titles of the documents that make the claims, by short name, in the claims' order."""
    return {item.claim.document: item.title for item in claims if item.title is not None}


def choose(claims: Sequence[LoadedClaim], *, kinds: Sequence[Kind], ids: Sequence[str]) -> tuple[LoadedClaim, ...]:
    """The claims of some kinds and ids; an id also stands for its further readings. Without any, all.

    Raises:
        InputError: there is no claim of an id.
    """
    known = [item.claim.id for item in claims]
    for wanted in ids:
        if not any(stands_for(wanted, name) for name in known):
            raise InputError(f"no claim {quoted(wanted)} in {FOLDER}/{nearest(wanted, known)}")
    chosen = [item for item in claims if not kinds or item.kind in kinds]
    return tuple(item for item in chosen if not ids or any(stands_for(wanted, item.claim.id) for wanted in ids))


def _retitled(documents: dict[str, str], *, titles: dict[str, str], document: Document) -> list[Problem]:
    """Take in a file's titles; a problem for each that another file has put differently."""
    return [
        _problem(document, ("documents", name), f"'{title}': another file calls {name} '{titles[name]}'")
        for name, title in documents.items()
        if titles.setdefault(name, title) != title
    ]


def _load(claim: CalculatedClaim, *, document: Document, path: Path_, found: list[Problem]) -> list[LoadedClaim]:
    try:
        return [LoadedClaim(claim, _architectures(claim, document=document, path=path))]
    except DeclarationError as error:
        found += error.problems
    except InputError as error:
        found.append(_problem(document, (*path, "preset"), str(error)))
    return []


def _architectures(claim: CalculatedClaim, *, document: Document, path: Path_) -> tuple[Architecture, ...]:
    expect = claim.expect
    match expect:
        case Count() | Share():
            return (_declared(expect.preset, _part(document, (*path, "set"), expect.set)),)
        case Ratio(to=other) | Difference(less=other):
            key = "to" if isinstance(expect, Ratio) else "less"
            first = _part(document, (*path, "set"), expect.set)
            second = first if other.set is None else _part(document, (*path, key, "set"), other.set)
            return _declared(expect.preset, first), _declared(other.preset or expect.preset, second)
        case Identity():
            architecture = _architecture(defaults().over(Document(SMALL)), _part(document, (*path, "set"), expect.set))
            if missing := [*unmet(expect.property, architecture=architecture)]:
                raise DeclarationError([_problem(document, (*path, "property"), reason) for reason in missing])
            return (architecture,)
        case Worked():
            return ()


def _declared(preset: str, patch: Document) -> Architecture:
    return _architecture(_preset(preset), patch)


@cache
def _preset(name: str) -> Settings:
    return Settings().over(load_preset(name))


def _architecture(settings: Settings, patch: Document) -> Architecture:
    changed = settings.over(patch)
    kept = {key: value for key, value in changed.data.items() if FIELDS[key] is Architecture}
    strange = [key for key in patch.data if FIELDS.get(key.split(".")[0], Architecture) is not Architecture]
    found = [*changed.unknown, *(_problem(patch, (key,), "is a recipe's, and nothing is trained here") for key in strange)]
    if found:
        raise DeclarationError(found)
    return validate(Document(kept, changed.marks), model=Architecture)


def _part(document: Document, path: Path_, patch: Patch) -> Document:
    """A mapping inside the document, with the places of what is in it."""
    marks = {found[len(path) :]: mark for found, mark in document.marks.items() if found[: len(path)] == path}
    return Document(patch, marks)


def _shipped() -> list[Path]:
    return [file for name in project.names(FOLDER) if (file := project.find(FOLDER, name)) is not None]


def _problem(document: Document, path: Path_, message: str) -> Problem:
    mark = document.mark(path)
    return Problem(mark.file, mark.line, mark.column, ".".join(map(str, path)), message)
