"""From finished runs to verdicts and a report."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knockout import __version__
from knockout.account import count
from knockout.corpus.prepare import Prepared
from knockout.declare.claim import BASELINE, Causality
from knockout.declare.plan import Cell, Plan
from knockout.declare.study import Study
from knockout.judge import Judgement, RunRecord, decide
from knockout.judge.doubts import doubts
from knockout.judge.fairness import fairness
from knockout.judge.flag import Flag
from knockout.judge.pruned import pruned_trials
from knockout.judge.statistics.looks import Look, declared_looks
from knockout.ledger.aside import report_folder
from knockout.ledger.store import FINISHED, Ledger, LedgerRun
from knockout.report.facts import facts
from knockout.report.html import write_html
from knockout.submission.bind import BoundRun
from knockout.submission.earlier import earlier_looks
from knockout.training.stop import Ending

if TYPE_CHECKING:
    from knockout.submission.tuned import Tuned

VERSIONS = ("torch", "pytorch-lightning", "optuna", "mlflow", "prefect", "pyarrow", "polars", "tokenizers", "numpy", "scipy")


@dataclass(frozen=True)
class Concluding:
    """How a submission ended: its state, everything its report says, and where the report is."""

    state: str
    reason: str | None
    records: tuple[RunRecord, ...]
    judgement: Judgement
    facts: dict[str, Any]
    report: Path


def conclude(
    plan: Plan,
    *,
    runs: Sequence[BoundRun],
    prepared: Mapping[int, Prepared],
    reused: Mapping[str, bool],
    ledger: Ledger,
    seconds: float,
    tuned: Sequence[Tuned],
    revision: str | None = None,
    ending: Ending | None = None,
) -> Concluding:
    """Judge the claims from the ledger's results and write the report; `ending` is what ended the work early, if any did."""
    study, floors = plan.study, _floors_by_size(plan, prepared=prepared)
    judged, controls = _records(runs, reused=reused, ledger=ledger)
    records = [*judged, *controls]
    judgement = _judge(plan, judged=judged, controls=controls, floors=floors)
    trained = sum(record.seconds for record in records if not record.reused)
    trained += sum(point.cost.seconds for one in tuned for point in one.points if not point.reused)
    searches = [_with_ends(one, ledger=ledger) for one in tuned]
    state, reason = _outcome(records, ending=ending)
    flags = [*fairness(plan, tuned=searches), *doubts(plan, records=judged, floors=floors, tuned=searches)]
    flags += earlier_looks(plan, verdicts=judgement.verdicts, ledger=ledger)
    said = facts(
        {**_study(plan), "tuned": searches, "unfinished": _unfinished(records, reason=reason)},
        records=judged,
        controls=controls,
        fairness=_to_weigh(flags),
        judgement=judgement,
        floors=floors,
        manifest_digest=", ".join(dict.fromkeys(found.manifest.digest for found in prepared.values())),
        versions=_versions(),
        revision=revision,
        machine=_machine(),
        seconds={"total": seconds, "training": trained},
        command=f"knockout run {study.study} {plan.arguments}".strip(),
    )
    report = write_html(said, folder=report_folder(ledger.workspace, study=study.study, arguments=plan.arguments))
    return Concluding(state, reason, tuple(judged), judgement, said, report)


def _with_ends(tuned: Tuned, *, ledger: Ledger) -> dict[str, Any]:
    """A search as plain data; of each pruned trial whose runs were trained to their ends all the same, what it came to."""
    search = tuned.to_dict()
    for trial in pruned_trials([search]):
        ended = ledger.runs(trial["identities"])
        if len(ended) == len(trial["identities"]) and all(run.finished for run in ended):
            losses = [run.metrics[tuned.metric] for run in ended if run.state == "done"]
            trial["in_full"] = {"loss": sum(losses) / len(losses) if len(losses) == len(ended) else None}
    return search


def _to_weigh(flags: Sequence[Flag]) -> list[Flag]:
    """The serious flags first."""
    return sorted(flags, key=lambda flag: flag.level != "serious")


def judge(plan: Plan, *, runs: Sequence[BoundRun], prepared: Mapping[int, Prepared], ledger: Ledger) -> Judgement:
    """Judge the claims from the ledger's results, and write nothing."""
    judged, controls = _records(runs, reused={}, ledger=ledger)
    return _judge(plan, judged=judged, controls=controls, floors=_floors_by_size(plan, prepared=prepared))


def open_variants(study: Study, *, judgement: Judgement) -> frozenset[str]:
    """The variants of the claims that more seeds may settle: inconclusive ones where baseline and variants have learnt."""
    competent = {gate.size for gate in judgement.competence if gate.met}
    open_ = {v.claim for v in judgement.verdicts if v.outcome == "inconclusive" and v.size in competent and not v.unlearnt}
    return frozenset(name for claim in study.claims if claim.id in open_ for name in claim.expect.named.values())


def _outcome(records: Sequence[RunRecord], *, ending: Ending | None) -> tuple[str, str | None]:
    """The submission's state, and why it is not done: then some run has no result."""
    missing = [record for record in records if record.state not in FINISHED]
    if not missing:
        return "done", None
    if ending is not None:
        return ending.state, ending.reason
    return "failed", f"{missing[0].label}: {missing[0].state}: {missing[0].reason}"


def _unfinished(records: Sequence[RunRecord], *, reason: str | None) -> str | None:
    """What the report says of runs without a result."""
    num_missing = sum(record.state not in FINISHED for record in records)
    has = "has" if num_missing == 1 else "have"
    return f"{num_missing} of {len(records)} runs {has} no result: {reason}" if num_missing else None


def _judge(
    plan: Plan,
    *,
    judged: Sequence[RunRecord],
    controls: Sequence[RunRecord],
    floors: Mapping[str, Mapping[str, float]],
) -> Judgement:
    study = plan.study
    return decide(
        study.claims,
        decide=study.decide,
        competence=study.competence,
        records=judged,
        controls=controls,
        looks=_looks(plan),
        curves=_curves(plan, judged=judged),
        floors=floors,
        future_leak=_future_leak(plan),
        sizes=_by_growth(plan),
    )


def _looks(plan: Plan) -> list[Look]:
    """The looks taken so far, each with its level."""
    study = plan.study
    return declared_looks(
        [study.seeds_at(look) for look in range(plan.look + 1)],
        num_declared=len(study.looks),
        last=study.looks[-1],
        alpha=study.decide.alpha,
    )


def _curves(plan: Plan, *, judged: Sequence[RunRecord]) -> dict[str, list[tuple[float, float]]]:
    """For each size whose baseline may have to learn more, its mean loss over tokens."""
    from knockout.report.figures import loss_curve  # Polars takes a moment, which a study without a floor need not wait for

    if plan.study.competence.floor == "none":
        return {}
    rows = loss_curve([run for run in judged if run.variant == BASELINE], metric="val_loss").to_dicts()
    return {size: [(row["tokens"], row["mean"]) for row in rows if row["size"] == size] for size in plan.study.size_names}


def _records(
    runs: Sequence[BoundRun], *, reused: Mapping[str, bool], ledger: Ledger
) -> tuple[list[RunRecord], list[RunRecord]]:
    """The judged runs' records, and the controls'."""
    known = {run.identity: run for run in ledger.runs([run.identity for run in runs])}
    pairs = [
        (run, _record(run, ended=known.get(run.identity), reused=reused.get(run.identity, True), ledger=ledger))
        for run in runs
    ]
    judged = [record for run, record in pairs if run.planned.role == "judged"]
    return judged, [record for run, record in pairs if run.planned.role != "judged"]


def _floors_by_size(plan: Plan, *, prepared: Mapping[int, Prepared]) -> dict[str, dict[str, float]]:
    return {cell.size: _floors(prepared[cell.architecture.vocabulary]) for cell in plan.cells}


def _record(run: BoundRun, *, ended: LedgerRun | None, reused: bool, ledger: Ledger) -> RunRecord:
    """The record of a run; one that the ledger does not know was not asked for before the work ended."""
    ended = ended or LedgerRun(run.identity, run.meaning, "planned", None, 0, 0, run.cell.num_steps, None, 0.0, {})
    architecture = run.cell.architecture
    parts = count(architecture).to_dict()["parameters"]
    share = ended.step / run.cell.num_steps
    return RunRecord(
        identity=run.identity,
        variant=run.cell.variant,
        size=run.cell.size,
        seed=run.planned.seed,
        state=ended.state,
        reason=ended.reason,
        reused=reused,
        folder=ledger.workspace.run(run.identity),
        step=ended.step,
        planned_steps=run.cell.num_steps,
        metrics=ended.metrics,
        causal=architecture.predicts_next,
        seconds=ended.seconds,
        tokens=round(run.tokens * share),
        flops=run.flops * share,
        parameters=parts,
    )


def _floors(prepared: Prepared) -> dict[str, float]:
    found = prepared.manifest.floors.model_dump()
    return {name: value for name, value in found.items() if value is not None}


def _future_leak(plan: Plan) -> dict[tuple[str, str], float]:
    """For each cell that a causality claim names, how far later tokens move earlier outputs."""
    asked = {claim.expect.variant for claim in plan.study.claims if isinstance(claim.expect, Causality)}
    if not asked:
        return {}
    from knockout.model.identities import future_leak  # torch takes a second to import, and most studies need it not

    cells: list[Cell] = [cell for cell in plan.cells if cell.variant in asked]
    return {(cell.variant, cell.size): future_leak(cell.architecture, seed=0) for cell in cells}


def _by_growth(plan: Plan) -> list[str]:
    """The plan's sizes, from the smallest baseline to the largest."""
    totals = {cell.size: count(cell.architecture).parameters.total for cell in plan.cells if cell.variant == BASELINE}
    return sorted(totals, key=lambda size: totals[size])


def _study(plan: Plan) -> dict[str, Any]:
    study = plan.study
    return {
        "name": study.study,
        "question": study.question,
        "corpus": study.corpus,
        "sizes": list(study.size_names),
        "source": study.source.model_dump() if study.source else None,
        "seeds": list(study.seeds_at(plan.look)),
        "decide": study.decide.model_dump(),
        "tune": study.tune.model_dump(mode="json") if study.tune is not None else None,
        "declaration": plan.text,
        "arguments": plan.arguments,
        "patches": {cell.variant: cell.patch for cell in plan.cells},
        "matched": [_matched(cell) for cell in plan.cells if cell.matched is not None],
    }


def _matched(cell: Cell) -> dict[str, Any]:
    return {"variant": cell.variant, "size": cell.size, **asdict(cell.matched)} if cell.matched is not None else {}


def _versions() -> dict[str, str]:
    return {"knockout": __version__, "python": platform.python_version()} | {
        name: metadata.version(name) for name in VERSIONS
    }


def _machine() -> dict[str, Any]:
    return {"system": f"{platform.system()} {platform.machine()}", "processor": _processor(), "cores": os.cpu_count()}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())
