"""Telling MLflow again what it lacks, from the ledger and the run files, with the same names, values and curves.

The invariant: it goes through the mirror, in which everything may be said twice and stands once, and in which a run that was
trained again takes the place of its earlier attempt.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from knockout.account import count
from knockout.corpus.lookup import folders_by_digest
from knockout.declare.architecture import Architecture
from knockout.declare.document import parse_document
from knockout.ledger.inventory import Ask, Submitted
from knockout.ledger.kinds import is_file
from knockout.ledger.store import Ledger, LedgerRun
from knockout.ledger.workspace import Workspace
from knockout.submission.describing import fairness_tag, settings_of
from knockout.submission.rows import readable_rows
from knockout.tracking import Mirror, State
from knockout.training.result import read_result
from knockout.training.spec import METRICS, RESULT


@dataclass(frozen=True)
class Told:
    """A submission, and what of it is to be told again."""

    submission: Submitted
    asks: tuple[Ask, ...]
    """All that it asked for."""
    runs: tuple[tuple[Ask, LedgerRun], ...]
    """The runs that are told."""
    parent: str | None
    """The id of its run in MLflow, where there is one."""
    closes: bool
    """Whether its end is told too."""


def tell_again(mirror: Mirror, *, ledger: Ledger, told: Iterable[Told]) -> None:
    """Write submissions and runs to MLflow, oldest first."""
    corpora = {digest: path.name for digest, path in folders_by_digest(ledger.workspace.corpora).items()}
    for one in told:
        parent = one.parent or _open(mirror, told=one)
        for ask, run in one.runs:
            _tell_run(mirror, told=one, parent=parent, ask=ask, run=run, workspace=ledger.workspace, corpora=corpora)
        if one.closes:
            _close(mirror, told=one, parent=parent, workspace=ledger.workspace)


def _open(mirror: Mirror, *, told: Told) -> str:
    submitted, judged = told.submission, [ask for ask in told.asks if ask.role == "judged"]
    study = parse_document(submitted.plan, file="study").data
    return mirror.open_submission(
        submitted.study,
        submission=submitted.submission,
        tags={},
        params={
            "question": study["question"],
            "corpus": study["corpus"],
            "sizes": ", ".join(dict.fromkeys(ask.size for ask in judged)),
            "seeds": len({ask.seed for ask in judged}),
            "runs": len(judged),
        },
        artifacts={"study.yaml": submitted.plan},
    )


def _tell_run(
    mirror: Mirror,
    *,
    told: Told,
    parent: str,
    ask: Ask,
    run: LedgerRun,
    workspace: Workspace,
    corpora: Mapping[str, str],
) -> None:
    folder, digest = workspace.run(run.identity), run.meaning["corpus"]
    architecture = Architecture.model_validate_json(json.dumps(run.meaning["architecture"]))
    shown = mirror.open_run(
        parent,
        name=f"{ask.variant} · {ask.size} · {_which(ask, told=told)}",
        identity=run.identity,
        tags={
            "study": told.submission.study,
            "variant": ask.variant,
            "size": ask.size,
            "seed": ask.seed,
            "role": ask.role,
            **_match_error(ask, facts=told.submission.facts),
        },
        params=settings_of(run.meaning) | {"steps": run.planned_steps},
        split=count(architecture).to_dict()["parameters"],
        corpus={"name": corpora.get(digest, digest[:16]), "digest": digest},
        artifacts={"meaning.json": json.dumps(run.meaning, indent=1, sort_keys=True)},
    )
    rows = readable_rows(folder)
    mirror.metrics(shown, rows, planned_steps=run.planned_steps)
    mirror.close_run(
        shown,
        state=cast(State, run.state),
        reason=run.reason or "",
        final=run.metrics,
        artifacts={name: folder / name for name in (RESULT, METRICS) if is_file(folder / name)},
        series=rows if is_sealed(run, folder=folder) else (),
        planned_steps=run.planned_steps,
    )


def is_sealed(run: LedgerRun, *, folder: Path) -> bool:
    """Whether a folder holds the result that the ledger has of a run, so that its metric file is the run's whole series.

    Another machine's folder may hold what it had trained of the run before a second one brought it to its end.
    """
    result = read_result(folder) if run.finished else None
    return result is not None and json.dumps(result["metrics"], sort_keys=True) == json.dumps(run.metrics, sort_keys=True)


def _close(mirror: Mirror, *, told: Told, parent: str, workspace: Workspace) -> None:
    submitted, facts = told.submission, told.submission.facts
    page = workspace.report(submitted.study, arguments=submitted.arguments) / "report.html"
    mirror.close_submission(
        parent,
        state=cast(State, submitted.state),
        verdicts=facts["verdicts"] if facts is not None else (),
        report=page if facts is not None and page.exists() else None,
        tags={
            **(fairness_tag(facts.get("fairness", ())) if facts is not None else {}),
            **({} if submitted.reason is None else {"reason": submitted.reason}),
        },
    )


def _which(ask: Ask, *, told: Told) -> str:
    """`s3`, or `trial 2`: by its number in the report, or else in the order of asking."""
    if ask.role != "trial":
        return f"s{ask.seed}"
    for search in (told.submission.facts or {"study": {}})["study"].get("tuned") or ():
        for trial in search["trials"]:
            if ask.identity in trial["identities"]:
                return f"trial {trial['number']}"
    alike = [one.identity for one in told.asks if _cell(one) == _cell(ask)]
    return f"trial {alike.index(ask.identity)}"


def _cell(ask: Ask) -> tuple[str, str, str, int]:
    return ask.role, ask.variant, ask.size, ask.seed


def _match_error(ask: Ask, *, facts: Mapping[str, Any] | None) -> dict[str, str]:
    matched = (facts or {"study": {}})["study"].get("matched") or ()
    found = [one["error"] for one in matched if (one["variant"], one["size"]) == (ask.variant, ask.size)]
    return {"match_error": f"{found[0]:+.4%}"} if found else {}
