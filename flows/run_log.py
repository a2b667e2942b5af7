"""The log of a flow run on its page in Prefect: a few lines at its milestones, for who looks there and not in the ledger.

The invariant: a line for what a study comes to, none for a step; Prefect sends lines that come together in one request.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from prefect.logging import get_run_logger
from prefect.logging.loggers import PrefectLogAdapter

from knockout.declare.plan import Plan
from knockout.submission.bind import BoundRun
from knockout.submission.concluding import Concluding
from knockout.submission.listener import Listener


def run_log() -> PrefectLogAdapter:
    """The log of the flow run that calls; Prefect's own lines stay at the level that the environment says."""
    found = get_run_logger()
    assert isinstance(found, PrefectLogAdapter)
    child = found.getChild("knockout")
    child.setLevel(logging.INFO)
    return child


class StudyLog(Listener):
    """What a submission tells the page of its flow run. Make it within the flow."""

    def __init__(self) -> None:
        self.log = run_log()
        self.prepared = False

    def planned(self, plan: Plan, runs: Sequence[BoundRun], done: Sequence[str], slots: int) -> None:
        """The corpus is ready, and so much of the plan is to do."""
        if not self.prepared:
            self.prepared = True
            self.log.info("corpus %s is ready", plan.study.corpus)
        wanted = {run.identity for run in runs}
        self.log.info("%d runs to train of %d", len(wanted) - len(set(done)), len(wanted))

    def note(self, text: str) -> None:
        """A line of its own."""
        self.log.info("%s", text)

    def ended(self, concluding: Concluding) -> None:
        """Each verdict, and where the report is."""
        for verdict in concluding.judgement.verdicts:
            self.log.info("%s %s %s: %s", verdict.claim, verdict.size, verdict.outcome, verdict.reason)
        self.log.info("report %s", concluding.report)
