"""The part of `reproduce` that is about studies: check names, plan, train one after the other, show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from knockout import project
from knockout.account.matching import plan_study
from knockout.cli.loading import report_commands
from knockout.cli.settling import set_right
from knockout.cli.unattended import run_command
from knockout.declare.claimed import ClaimedStudy, RefusedStudy, stands_for
from knockout.declare.claims_file import LoadedClaim
from knockout.declare.document import read_document
from knockout.declare.load import find_study
from knockout.declare.problems import nearest
from knockout.errors import DeclarationError, InputError, quoted
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import open_workspace
from knockout.report.results import Key, Section, section
from knockout.report.spent import spent
from knockout.report.trained import totals, trained_verdicts
from knockout.submission.preview import Preview, preview
from knockout.submission.reproducing import day, declarations_by_day, newest_by_size, reproduced
from knockout.submission.tables import preview_table

Studies = Sequence[ClaimedStudy | RefusedStudy]


@dataclass(frozen=True)
class Execution:
    """How studies are run; as for `knockout run`."""

    settle: bool
    slots: int | None
    run_seconds: float | None
    study_seconds: float | None
    prefect: bool
    mlflow: bool
    workspace: Path | None
    pool: str | None = None
    """The work pool that trains; None: this machine, in this process's care."""

    def command(self, study: str, *, changes: Sequence[str]) -> list[str]:
        """The command that brings a study to its verdicts."""
        begin = ["run", study] if self.pool is None else ["submit", study, "--wait", "--pool", self.pool]
        return [*begin, *changes, *self.arguments]

    @property
    def arguments(self) -> list[str]:
        """The same, for the command line, but for the looks, which not every study declares."""
        given = {
            "--slots": self.slots,
            "--run-seconds": self.run_seconds,
            "--study-seconds": self.study_seconds,
            "--workspace": self.workspace,
        }
        switches = [*([] if self.prefect else ["--no-prefect"]), *([] if self.mlflow else ["--no-mlflow"])]
        return [*switches, *(word for name, value in given.items() if value is not None for word in (name, str(value)))]


def check_names(names: Sequence[str], *, claims: Sequence[LoadedClaim], studies: Studies) -> None:
    """Check that each name is a claim's or a study's.

    Raises:
        InputError: one is neither.
    """
    trained = [claim.id for study in studies if isinstance(study, ClaimedStudy) for claim in study.claims]
    ids, known_studies = [*(item.claim.id for item in claims), *trained], [study.name for study in studies]
    for wanted in names:
        if wanted not in known_studies and not any(stands_for(wanted, name) for name in ids):
            unread = [study.name for study in studies if isinstance(study, RefusedStudy)]
            beside = f"; what {', '.join(unread)} claims is unknown, since it cannot be read" if unread else ""
            likely = nearest(wanted, [*ids, *known_studies])
            raise InputError(f"no claim or study {quoted(wanted)} in ablations/{likely}{beside}")


def refusals(studies: Studies) -> list[str]:
    """A line for each study that cannot be run."""
    return [f"{study.name}: refused: {study.reason}" for study in studies if isinstance(study, RefusedStudy)]


def train_all(studies: Studies, *, execution: Execution, silent: bool) -> list[str]:
    """Run each study to its verdicts, whatever becomes of the others; a line for each that did not get there."""
    console = Console(stderr=silent)
    missed = refusals(studies)
    ready = [study for study in studies if isinstance(study, ClaimedStudy)]
    for place, study in enumerate(ready, start=1):
        size = study.loaded.overrides.size
        console.print(f"\n[{place} of {len(ready)}] {study.name}", highlight=False, markup=False)
        changes = ["--size", size] if size is not None else []
        changes += ["--settle"] if execution.settle and study.loaded.study.settle is not None else []
        if (code := run_command(execution.command(study.name, changes=changes), silent=silent)) != 0:
            ended = "refused" if code == 2 else "failed"
            missed.append(f"{study.name}: {ended}, as said above (exit code {code})")
    console.print()
    return missed


def show_trained(studies: Studies, *, workspace: Path | None, silent: bool) -> list[dict[str, Any]]:
    """Show the verdicts that the workspace has, unless silent; as plain data."""
    ledger = Ledger(open_workspace(workspace))
    set_right(ledger)
    found = [reproduced(study, ledger=ledger) for study in studies if isinstance(study, ClaimedStudy)]
    ledger.close()
    rows = [row for study in found for row in study.rows]
    if rows and not silent:
        console = Console()
        console.print(trained_verdicts(rows, console=console))
        print(totals(rows, spent=spent(report for study in found for report in study.reports)))
    return [row.to_dict() for row in rows]


def show_plans(studies: Studies, *, workspace: Path | None, as_json: bool) -> list[str]:
    """Show what training would run, and about how long; a line for each study that is refused."""
    place, missed, plans, before = open_workspace(workspace), refusals(studies), list[Preview](), set[str]()
    for study in studies:
        if isinstance(study, ClaimedStudy):
            try:
                plans.append(
                    preview(plan_study(study.loaded), base=study.loaded.corpus_base, workspace=place, before=before)
                )
            except InputError as error:
                missed.append(f"{study.name}: refused: {error}")
    if as_json:
        print(json.dumps([plan.to_dict() for plan in plans], indent=1))
    else:
        Console().print(preview_table(plans))
    return missed


@dataclass(frozen=True)
class Results:
    """What a workspace has for the log of results."""

    sections: list[Section]
    """The newest verdicts, by study and size."""
    declared: dict[Key, str]
    """The declarations behind them, and behind those of other days."""
    left_out: list[str]
    """A line for each named study whose verdicts are of other settings than its file's."""


def results_of(names: Sequence[str], *, workspace: Path | None) -> Results:
    """What a workspace has of the named studies, or of all in ablations/.

    Raises:
        InputError: there is no study of a name, or none has a verdict that the log takes.
    """
    place = open_workspace(workspace)
    ledger = Ledger(place)
    sections, declared, left_out = list[Section](), dict[Key, str](), list[str]()
    for study in map(_study_of, names or project.names("ablations")):
        newest = newest_by_size(ledger, study=study, sizes=project.names("ablations/sizes"))
        judged = [(size, found) for size, found in newest.items() if found.facts["verdicts"]]
        sections += [section(found.facts, size=size, date=day(found.finished)) for size, found in judged]
        declared |= declarations_by_day(ledger, study=study) if judged else {}
        if names and not judged and (others := report_commands(study, reported=ledger.reported(study))):
            left_out.append(f"{study} has no verdicts in {place.folder} with the settings of its file, but {others}")
    ledger.close()
    if not sections and left_out:
        raise InputError("\n".join(left_out))
    if not sections:
        which = ", ".join(names) if names else "studies in ablations/"
        raise InputError(f"no verdicts of {which} in {place.folder}: run them with `knockout reproduce --kind train`")
    return Results(sections, declared, left_out)


def _study_of(name: str) -> str:
    """The name that the ledger knows a study's file by; the file's own where it cannot be read, since its results stand."""
    path = find_study(name)
    try:
        return str(read_document(path).data.get("study", name))
    except DeclarationError:
        return name
