"""Plans and states as tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from knockout.account import count
from knockout.declare.plan import Plan
from knockout.ledger.identity import flatten
from knockout.ledger.ticks import Tick
from knockout.report.accounts import number
from knockout.report.fitting import Fitting
from knockout.report.words import as_yaml
from knockout.services import ServiceStatus
from knockout.submission.duration import Duration
from knockout.submission.preview import CellPreview, Preview
from knockout.submission.schedules import Known
from knockout.submission.slots import usable_cores
from knockout.submission.watching import QueueState, RunState, SubmissionState

SHORT = 8
"""Digits of an identity: `knockout why` takes its beginning."""
_MARKS = {"serious": "unfair?", "note": "note:"}


def duration(seconds: float) -> str:
    """Seconds in words: 45 s · 12 min · 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def plan_table(preview: Preview) -> RenderableType:
    """A plan: its cells, what they change, and what is to do."""
    table = _table("variant", "size", "parameters", "FLOPs/token", "steps", "runs")
    for cell in preview.cells:
        table.add_row(
            cell.variant,
            cell.size,
            _parameters(cell),
            number(cell.flops_per_token),
            f"{cell.steps:,}",
            f"{cell.runs} ({cell.reused} done)" if cell.reused else str(cell.runs),
        )
    says = "nothing to train"
    if preview.runs_to_do:
        trials = f", {preview.trials_to_do} of them trials" if preview.trials_to_do else ""
        says = f"{preview.runs_to_do} runs to train{trials}, {_about(preview.duration)}"
    if not preview.corpus_prepared:
        says += f"; corpus {preview.corpus} is not prepared yet, so what can be reused is unknown"
    patches = {cell.variant: cell.patch for cell in preview.cells}
    fairness = [Text(f" {_MARKS[flag.level]} {flag.sentence}") for flag in preview.fairness]
    return Group(Text(f"{preview.study}: {preview.question}"), table, *_changes(patches), *fairness, Text(says))


def preview_table(previews: Sequence[Preview]) -> RenderableType:
    """Several plans, a line each, and about how long they take one after the other."""
    table = _table("study", "runs", "to train", "about", "corpus")
    for preview in previews:
        trials = f" ({preview.trials_to_do} trials)" if preview.trials_to_do else ""
        table.add_row(
            preview.study,
            str(sum(cell.runs for cell in preview.cells)),
            f"{preview.runs_to_do}{trials}",
            duration(preview.duration.seconds),
            preview.corpus if preview.corpus_prepared else f"{preview.corpus} (not prepared yet)",
        )
    total, to_do = sum(preview.duration.seconds for preview in previews), sum(preview.runs_to_do for preview in previews)
    says = f"{to_do} runs to train, about {duration(total)} on {usable_cores()} cores" if to_do else "nothing to train"
    return Group(table, Text(says))


def cell_table(plan: Plan) -> RenderableType:
    """The cells of a plan, short, and what they change."""
    table = _table("variant", "size", "parameters", "FLOPs/token", "steps", "seeds")
    for cell in plan.cells:
        account = count(cell.architecture)
        table.add_row(
            cell.variant,
            cell.size,
            number(account.parameters.total),
            number(account.flops_per_token.forward),
            f"{cell.num_steps:,}",
            str(len(plan.study.seed_list)),
        )
    return Group(table, *_changes({cell.variant: cell.changes for cell in plan.cells}))


def _changes(patches: Mapping[str, dict[str, object]]) -> list[Text]:
    """A line for each variant that changes something, and an empty one after them."""
    lines = [Text(f" {variant}: {changes(patch)}") for variant, patch in patches.items() if patch]
    return [*lines, Text()] if lines else []


def service_table(statuses: Sequence[ServiceStatus]) -> Table:
    """The local services."""
    table = _table("service", "state", "address", "since")
    for server in statuses:
        state = "running" if server.healthy else "not answering" if server.running else "not running"
        table.add_row(server.name, state, server.url or "", minute(server.since) if server.since else "")
    return table


def queue_table(queues: Sequence[QueueState]) -> Table:
    """What each queue of the pools holds."""
    table = _table("pool", "queue", "workers", "running", "waiting", "next scheduled")
    for one in queues:
        then = minute(one.next) if one.next is not None else ""
        table.add_row(one.pool, one.queue, str(one.workers), str(one.running), str(one.waiting), then)
    return table


def run_table(runs: Sequence[RunState]) -> Table:
    """The runs of a submission, with so much of each identity as tells them apart, and no column that says nothing."""
    told = [("where", [run.where or "" for run in runs]), ("reason", [run.reason or "" for run in runs])]
    shown = [(title, texts) for title, texts in told if any(texts)]
    table = _table("run", "state", "step", "identity", *(title for title, _ in shown))
    for place, run in enumerate(runs):
        step = f"{run.step:,} of {run.planned_steps:,}"
        table.add_row(run.name, run.state, step, run.identity[:SHORT], *(texts[place] for _, texts in shown))
    return table


def schedule_table(known: Sequence[Known], *, due: Mapping[str, float], ticks: Mapping[str, Tick]) -> Table:
    """Schedules: when each is due next, and how its last sweep ended."""
    table = _table("schedule", "when", "next", "last", "pool", "what")
    for one in known:
        name, last = one.schedule.schedule, ticks.get(one.schedule.schedule)
        table.add_row(
            name,
            f"{one.schedule.cron} {one.schedule.timezone}",
            minute(due[name], zone=one.schedule.timezone) if one.active else "paused",
            last.state if last is not None else "",
            one.schedule.pool,
            ", ".join(one.schedule.studies) + (f" at {one.schedule.size}" if one.schedule.size is not None else ""),
        )
    return table


def minute(seconds: float, *, zone: str | None = None) -> str:
    """A time of day to the minute, in a zone, or else in this machine's: `2026-11-30 02:30 CET`."""
    when = datetime.fromtimestamp(seconds, UTC).astimezone(ZoneInfo(zone) if zone is not None else None)
    return f"{when:%Y-%m-%d %H:%M %Z}"


def submission_table(states: Sequence[SubmissionState]) -> Table:
    """The newest submissions."""
    table = _table("submission", "study", "state", "runs", "reason")
    for item in states:
        table.add_row(item.submission, item.study, item.state, f"{item.finished} of {item.runs}", item.reason or "")
    return table


def changes(patch: Mapping[str, object]) -> str:
    """A patch in one line: `residual.kind: none, depth: 16`."""
    return ", ".join(f"{path}: {as_yaml(value)}" for path, value in flatten(dict(patch)).items())


def _about(time: Duration) -> str:
    """`about 12 min with 2 runs at a time, 80 % of it measured on this machine`."""
    runs = "1 run" if time.slots == 1 else f"{time.slots} runs"
    return f"about {duration(time.seconds)} with {runs} at a time, {_percent(time.measured_share)} of it measured here"


def _percent(share: float) -> str:
    return "all" if share > 0.995 else "nothing" if share < 0.005 else f"{100 * share:.0f} %"


def _parameters(cell: CellPreview) -> str:
    active = f" ({number(cell.active_parameters)} active)" if cell.active_parameters != cell.parameters else ""
    return number(cell.parameters) + active


def _table(*columns: str, title: str | None = None) -> Fitting:
    """Only sentences wrap; names and numbers stay whole."""
    table = Fitting(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, padding=(0, 1))
    for column in columns:
        right = column in ("parameters", "FLOPs/token", "steps", "tokens", "share", "seeds", "")
        wraps = column in ("changes", "reason", "corpus", "what", "when", "run", "where")
        table.add_column(column, justify="right" if right else "left", no_wrap=not wraps, overflow="fold")
    return table
