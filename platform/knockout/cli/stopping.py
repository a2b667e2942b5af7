"""`knockout stop`: ask what runs to end, from any terminal on the same workspace, and wait until it has."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from knockout.cli.options import Home
from knockout.ledger.reserve import LOOKING

if TYPE_CHECKING:
    from knockout.ledger.store import Ledger, Submission

POLL_SECONDS = 0.5
PATIENCE_SECONDS = 150.0
"""A run has some seconds for its step before it is killed, and the mirror to MLflow a minute for what is left."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Ask a study's submissions, or a schedule's sweep, to end.")(stop)


def stop(
    name: Annotated[
        str,
        typer.Argument(
            metavar="STUDY|SUBMISSION|SCHEDULE",
            help="A study, its file, a submission of it, or a schedule whose sweep runs.",
        ),
    ],
    workspace: Home = None,
) -> None:
    """Ask the running submissions of a study, or the one named, to end as Ctrl-C would: runs stop with a checkpoint.

    Of a sweep, a study that is stopped leaves the others to go on; by the schedule's name the whole sweep ends.
    """
    from knockout.cli.loading import study_name
    from knockout.cli.settling import set_right, set_right_in_prefect
    from knockout.ledger.stops import request_stop
    from knockout.ledger.store import Ledger
    from knockout.ledger.ticks import request_end
    from knockout.ledger.workspace import open_workspace

    ledger = Ledger(open_workspace(workspace, reserve_left=LOOKING))
    set_right(ledger)
    wanted = study_name(name)
    swept = request_end(ledger, schedule=wanted)
    if swept:
        print(_await_sweep(ledger, schedule=wanted))
    cancelled = _cancel_lost(ledger, name=wanted)
    known = ledger.submissions()
    running = [one for one in known if one.state == "running" and wanted in (one.study, one.submission)]
    called_off = [*cancelled, *_call_off(ledger, name=wanted, known=known)]
    for line in called_off:
        print(line)
    if running:
        request_stop(ledger, submissions=[one.submission for one in running])
        for ended in _await_end(ledger, names=[one.submission for one in running]):
            print(f"{ended.study} {ended.submission}: {ended.state}{f': {ended.reason}' if ended.reason else ''}")
    elif not (called_off or swept):
        if not _was_called_off(ledger, name=wanted, known=known):
            check_known(wanted, submissions=known, schedules=_schedules(ledger))
        print(f"nothing of '{wanted}' is running")
    set_right(ledger)
    set_right_in_prefect(ledger)


def _cancel_lost(ledger: Ledger, *, name: str) -> list[str]:
    """End what lost its process and a worker would go on with; a line for each."""
    from knockout.ledger.lost import cancel_lost, lost_submissions
    from knockout.ledger.process import this_process
    from knockout.ledger.stops import BY_COMMAND
    from knockout.submission.requests import has_request

    lost = [one for one in lost_submissions(ledger) if name in (one.study, one.submission)]
    lost = [one for one in lost if has_request(one.submission, workspace=ledger.workspace)]
    ended = [one for one in lost if cancel_lost(ledger, submission=one.submission, owner=this_process())]
    return [f"{one.study} {one.submission}: {BY_COMMAND.state}: {BY_COMMAND.reason}" for one in ended]


def _call_off(ledger: Ledger, *, name: str, known: Sequence[Submission]) -> list[str]:
    """Take back what was handed to a pool and no worker has begun; a line for each."""
    from knockout.cli.flows import PATIENT, load_flow
    from knockout.cli.prefect_server import prefect_address
    from knockout.submission.requests import waiting_requests, withdraw

    names = frozenset(one.submission for one in known)
    waiting = waiting_requests(ledger, known=names)
    found = [one for one in waiting if name in (one.study_name, one.submission)]
    for one in found:
        withdraw(one.submission, ledger=ledger)
        submitting = load_flow("pools.submitting", server=prefect_address(ledger.workspace), retries=PATIENT)
        submitting.call_off(one.submission, reason="stopped by `knockout stop`")
    return [f"{one.study_name} {one.submission}: cancelled before a worker began it" for one in found]


def _was_called_off(ledger: Ledger, *, name: str, known: Sequence[Submission]) -> bool:
    """Whether what has the name was stopped earlier, before a worker began it."""
    from knockout.submission.requests import withdrawn_requests

    withdrawn = withdrawn_requests(ledger, known=frozenset(one.submission for one in known))
    return any(name in (one.study_name, one.submission) for one in withdrawn)


def _schedules(ledger: Ledger) -> list[str]:
    """The names of schedules, here or, where machines share a ledger, on another."""
    from knockout.ledger.ticks import last_ticks
    from knockout.submission.schedules import schedules

    return sorted({one.schedule.schedule for one in schedules(ledger.workspace)} | last_ticks(ledger).keys())


def check_known(name: str, *, submissions: Sequence[Submission], schedules: Sequence[str] = ()) -> None:
    """Refuse a name that is neither a study's nor a submission's, nor one of some schedules."""
    from knockout import project
    from knockout.declare.problems import nearest
    from knockout.errors import InputError, quoted

    studies = sorted({one.study for one in submissions} | set(project.names("ablations")))
    names = [one.submission for one in submissions]
    if name not in (*studies, *names, *schedules):
        there = f"there are {', '.join(studies)}" if studies else "there are none"
        raise InputError(f"no study or submission {quoted(name)} ({there}){nearest(name, [*studies, *names, *schedules])}")


def _await_sweep(ledger: Ledger, *, schedule: str) -> str:
    """How a sweep ended that was asked to, and the submission that it was at.

    Raises:
        RunError: it has not ended in time.
    """
    from knockout.errors import RunError
    from knockout.ledger.stops import stopped_among
    from knockout.ledger.ticks import RUNNING, last_ticks

    until = time.monotonic() + PATIENCE_SECONDS
    _say(f"asked the sweep {schedule} to stop", over=False)
    while (tick := last_ticks(ledger)[schedule]).state in RUNNING:
        if time.monotonic() > until:
            raise RunError(f"asked the sweep {schedule} to stop, but after {PATIENCE_SECONDS:g} s it still runs")
        time.sleep(POLL_SECONDS)
    running = [one.submission for one in ledger.submissions() if one.state == "running"]
    if asked := stopped_among(ledger, submissions=running):
        _await_end(ledger, names=asked)
    else:
        _say("", over=True)
    return f"{schedule}: {tick.state}{f': {tick.reason}' if tick.reason else ''}"


def _await_end(ledger: Ledger, *, names: Collection[str]) -> list[Submission]:
    """The submissions, once none is running; one whose process dies meanwhile has ended too.

    Raises:
        RunError: some have not ended in time.
    """
    from knockout.errors import RunError

    until, told = time.monotonic() + PATIENCE_SECONDS, -1
    while True:
        ledger.reconcile()
        asked = [one for one in ledger.submissions() if one.submission in names]
        left = [one for one in asked if one.state == "running"]
        if len(left) != told:
            told = len(left)
            _say(f"asked to stop: {len(asked) - told} of {len(asked)} ended", over=not left)
        if not left:
            return asked
        if time.monotonic() > until:
            who = ", ".join(f"{one.submission} ({one.owner})" for one in left)
            raise RunError(f"asked to stop, but after {PATIENCE_SECONDS:g} s still running: {who}")
        time.sleep(POLL_SECONDS)


def _say(line: str, *, over: bool) -> None:
    """Progress on standard error: a line that is replaced on a terminal, lines elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{'' if over else line}", end="", file=sys.stderr, flush=True)
    elif line:
        print(line, file=sys.stderr, flush=True)
