"""What a workspace knows of the claims that training decides.

The invariant: verdicts come from the reports in the ledger and are never worked out again; those of a study whose file
has changed since do not count.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from knockout import project
from knockout.declare.claim import Claim
from knockout.declare.claimed import ClaimedStudy
from knockout.declare.document import parse_document
from knockout.declare.load import Overrides
from knockout.ledger.conclusions import Conclusion, conclusions
from knockout.ledger.store import Ledger
from knockout.report.spent import SizeReport
from knockout.report.trained import TrainedVerdict


@dataclass(frozen=True)
class Reproduced:
    """A study's claims with their verdicts, and the reports that these come from."""

    rows: tuple[TrainedVerdict, ...]
    reports: tuple[SizeReport, ...]


def reproduced(study: ClaimedStudy, *, ledger: Ledger) -> Reproduced:
    """The verdicts of a study's claims at its sizes; "not run" for those that are missing. Trains nothing."""
    sizes = study.loaded.study.size_names
    newest = newest_by_size(ledger, study=study.loaded.study.study, sizes=sizes)
    fresh = {size: found for size, found in newest.items() if declared_as(found.facts, text=study.loaded.text)}
    missing = [size for size in sizes if size not in fresh]
    stale = [newest[size] for size in missing if size in newest]
    rows: list[TrainedVerdict] = []
    for claim in study.claims:
        rows += _found(claim, study=study, fresh=fresh)
        if missing:
            rows.append(_not_run(claim, study=study, sizes=missing, stale=stale))
    return Reproduced(tuple(rows), tuple(SizeReport(found.facts, size) for size, found in fresh.items()))


def newest_by_size(ledger: Ledger, *, study: str, sizes: Iterable[str]) -> dict[str, Conclusion]:
    """For each of some sizes the newest conclusion of a study that nothing but a size or further looks has changed."""
    left = list(sizes)
    as_declared = _as_declared()
    found: dict[str, Conclusion] = {}
    for conclusion in conclusions(ledger, study=study):
        if not left:
            break
        if conclusion.arguments not in as_declared:
            continue
        for size in [size for size in left if size in conclusion.facts["sizes"]]:
            found[size] = conclusion
            left.remove(size)
    return found


def declarations_by_day(ledger: Ledger, *, study: str) -> dict[tuple[str, str, str], str]:
    """The declaration, in YAML, behind the newest conclusion of each (study, size, day), for those that the log takes."""
    as_declared, found = _as_declared(), dict[tuple[str, str, str], str]()
    for conclusion in conclusions(ledger, study=study):
        if conclusion.arguments in as_declared:
            for size in conclusion.facts["sizes"]:
                found.setdefault((study, size, day(conclusion.finished)), conclusion.facts["study"]["declaration"])
    return found


def day(seconds: float) -> str:
    """The date of a moment, in universal time: 2026-11-29."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def command(study: ClaimedStudy) -> str:
    """What brings a study to its verdicts."""
    size = study.loaded.overrides.size
    words = ["knockout", "reproduce", "--kind", "train", "--only", study.name, *(["--size", size] if size else [])]
    return shlex.join(words)


def _as_declared() -> set[str]:
    """The arguments that leave a study as its file declares it, but for the size and further looks."""
    sizes = [None, *project.names("ablations/sizes")]
    return {Overrides(size=size, settle=settle).arguments for size in sizes for settle in (False, True)}


def declared_as(facts: Mapping[str, Any], *, text: str) -> bool:
    """Whether a report is of the declaration that a study's file has now, whatever the comments say."""
    before = facts["study"]["declaration"]
    return before == text or _data(before) == _data(text)


def _data(text: str) -> Mapping[str, Any]:
    return parse_document(text, file="study").data


def _found(claim: Claim, *, study: ClaimedStudy, fresh: Mapping[str, Conclusion]) -> list[TrainedVerdict]:
    """A claim's verdicts at the sizes that were concluded; one that spans several sizes comes once."""
    known = set(study.loaded.study.size_names)
    rows: dict[str, TrainedVerdict] = {}
    for size, found in fresh.items():
        for verdict in found.facts["verdicts"]:
            label = verdict["size"]
            if verdict["claim"] == claim.id and (label == size or label not in known):
                rows.setdefault(label, _row(claim, study=study, verdict=verdict))
    return list(rows.values())


def _row(claim: Claim, *, study: ClaimedStudy, verdict: Mapping[str, Any]) -> TrainedVerdict:
    return TrainedVerdict(
        study=study.name,
        claim=claim.id,
        says=claim.says,
        size=verdict["size"],
        outcome=verdict["outcome"],
        reason=verdict["reason"],
        command=command(study),
        found=verdict,
    )


def _not_run(claim: Claim, *, study: ClaimedStudy, sizes: list[str], stale: list[Conclusion]) -> TrainedVerdict:
    doing = command(study)
    changed = f"the study has changed since its verdict of {day(stale[0].finished)}; " if stale else ""
    return TrainedVerdict(
        study=study.name,
        claim=claim.id,
        says=claim.says,
        size=", ".join(sizes),
        outcome="not run",
        reason=f"{changed}run it with `{doing}`",
        command=doing,
        found=None,
    )
