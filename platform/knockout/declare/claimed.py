"""The studies whose training decides claims: every file in ablations/ that makes some.

The invariant: a study that cannot be read is kept as refused, with what is wrong with it, so that it hides no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from knockout import project
from knockout.declare.claim import Claim
from knockout.declare.load import Loaded, Overrides, find_study, load_size, load_study
from knockout.errors import InputError


@dataclass(frozen=True)
class ClaimedStudy:
    """A study, and those of its claims that are asked for."""

    name: str
    """The name of its file, by which commands find it."""
    loaded: Loaded
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class RefusedStudy:
    """A study that cannot be run, and why."""

    name: str
    reason: str


def claimed_studies(*, size: str | None = None) -> list[ClaimedStudy | RefusedStudy]:
    """Every study with claims, by name; at a size instead of its own.

    Raises:
        InputError: there is no such size.
    """
    if size is not None:
        load_size(size)
    found = [_read(name, size=size) for name in project.names("ablations")]
    return [study for study in found if isinstance(study, RefusedStudy) or study.claims]


def choose_studies(
    studies: Sequence[ClaimedStudy | RefusedStudy], *, names: Sequence[str]
) -> list[ClaimedStudy | RefusedStudy]:
    """The studies that are named or make a claim that is, with those claims alone; all of them without any name."""
    if not names:
        return list(studies)
    chosen: list[ClaimedStudy | RefusedStudy] = []
    for study in studies:
        if study.name in names:
            chosen.append(study)
        elif isinstance(study, ClaimedStudy) and (claims := _named(study.claims, names=names)):
            chosen.append(replace(study, claims=claims))
    return chosen


def stands_for(wanted: str, claim_id: str) -> bool:
    """Whether a name means a claim: its id, or that of which it is a further reading ID.*."""
    return claim_id == wanted or claim_id.startswith(f"{wanted}.")


def _named(claims: Sequence[Claim], *, names: Sequence[str]) -> tuple[Claim, ...]:
    return tuple(claim for claim in claims if any(stands_for(name, claim.id) for name in names))


def _read(name: str, *, size: str | None) -> ClaimedStudy | RefusedStudy:
    try:
        loaded = load_study(find_study(name), overrides=Overrides(size=size))
    except InputError as error:
        return RefusedStudy(name, str(error))
    if loaded.problems:
        return RefusedStudy(name, "\n".join(map(str, loaded.problems)))
    return ClaimedStudy(name, loaded, tuple(loaded.study.claims))
