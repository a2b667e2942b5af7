"""What is wrong in a workspace, and setting it right.

The invariant: looking changes nothing but what every command sets right first (leases of dead processes, whose ledger it is
in a copied or moved workspace), and says so; repairing loses no result, looks again afterwards, and calls nothing repaired
that is still found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from knockout.errors import KnockoutError, WorkspaceError
from knockout.ledger.format import misfit
from knockout.ledger.inventory import entries, every_ask, every_submission
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import Workspace
from knockout.training.untold import reconcile
from knockout.upkeep import content, files
from knockout.upkeep.finding import Finding
from knockout.upkeep.links import leading_out
from knockout.upkeep.mirror import mirror
from knockout.upkeep.prefect import prefect

TRIES = 2
"""So often one thing is set right."""
STILL = "a second look after it was set right finds it unchanged"


@dataclass(frozen=True)
class Diagnosis:
    """What was found."""

    settled: tuple[str, ...]
    """What every command sets right first, in words."""
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Repaired:
    """A finding, and what became of it."""

    finding: Finding
    problem: str | None
    """Why it could not be set right; None where it was."""


def diagnose(workspace: Workspace) -> Diagnosis:
    """Look at a whole workspace; one of an older or newer knockout is looked at no further."""
    try:
        older = misfit(workspace)
    except WorkspaceError as error:
        return Diagnosis((), (Finding("ledger", "ledger.db", str(error), "see there"),))
    if older is not None:
        added = Finding(
            "ledger", "ledger.db", older, "adds that, after it has kept a copy", lambda: Ledger(workspace).close()
        )
        return Diagnosis((), (added,))
    ledger = Ledger(workspace)
    try:
        settled = tuple(_settled(ledger))
        return Diagnosis(settled, tuple(_findings(ledger)))
    finally:
        ledger.close()


def repair(diagnosis: Diagnosis, *, workspace: Workspace) -> list[Repaired]:
    """Set right what was found, one after the other, look again, and set right what that has brought to light.

    What is found again is tried once more, since setting another thing right may have brought it back. What is then still
    there was not set right.
    """
    became: dict[tuple[str, str, str], Repaired] = {}
    tries: Counter[tuple[str, str, str]] = Counter()
    while due := [finding for finding in diagnosis.findings if _is_due(finding, became=became, tries=tries)]:
        for finding in due:
            tries[_named(finding)] += 1
            became[_named(finding)] = Repaired(finding, _problem(finding))
        diagnosis = diagnose(workspace)
    left = {_named(finding) for finding in diagnosis.findings}
    return [replace(one, problem=one.problem or (STILL if name in left else None)) for name, one in became.items()]


def _is_due(
    finding: Finding, *, became: Mapping[tuple[str, str, str], Repaired], tries: Mapping[tuple[str, str, str], int]
) -> bool:
    """Whether a finding is to be set right: it is new, or is there again although it seemed to be."""
    before = became.get(_named(finding))
    return before is None or (before.problem is None and tries[_named(finding)] < TRIES)


def _problem(finding: Finding) -> str | None:
    """Set one thing right; why it could not be, or None."""
    if finding.repair is None:
        return finding.remedy
    try:
        finding.repair()
    except (KnockoutError, OSError) as error:
        return str(error)
    return None


def _named(finding: Finding) -> tuple[str, str, str]:
    return finding.kind, finding.where, finding.what


def _findings(ledger: Ledger) -> Iterator[Finding]:
    workspace = ledger.workspace
    known, submitted, asked = entries(ledger), every_submission(ledger), every_ask(ledger)
    busy = any(one.state == "running" for one in submitted)
    yield from leading_out(workspace)
    yield from files.orphans(ledger, known=known, busy=busy)
    yield from files.damaged_runs(ledger, known=known)
    yield from files.half_written(workspace, known=known, busy=busy)
    yield from content.corpora(workspace)
    yield from content.searches(ledger, asked=asked)
    yield from content.reports(workspace, known=submitted)
    yield from content.servers(workspace)
    yield from prefect(workspace, busy=busy)
    yield from mirror(ledger, submitted=submitted, asked=asked, known=known)


def _settled(ledger: Ledger) -> Iterable[str]:
    if ledger.moved_from is not None:
        yield (
            f"the workspace was copied or moved from {ledger.moved_from}: the ledger was changed, it now belongs here, and "
            f"of a copy what was in work there has failed here"
        )
    for name in reconcile(ledger):
        run = ledger.run(name)
        became = "it has failed, and can be run again"
        if run is not None and run.finished:
            became = f"its sealed result is taken up, it is {run.state}"
        yield f"{name} was held by a dead process: {became}"
