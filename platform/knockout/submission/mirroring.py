"""What a submission shows in MLflow: a parent run, a child run for each cell and seed, curves while they grow.

The invariant: the mirror is fed from the run folders and can fall behind or fail; training never waits for it.
"""

from __future__ import annotations

import json
from typing import cast, get_args

from knockout.account import count
from knockout.declare.plan import Plan, plan_text
from knockout.ledger.kinds import is_file
from knockout.ledger.store import Ledger
from knockout.services.waiting import Say
from knockout.submission.bind import BoundRun
from knockout.submission.concluding import Concluding
from knockout.submission.describing import fairness_tag, settings_of
from knockout.submission.owed import catch_up
from knockout.submission.retelling import is_sealed
from knockout.submission.rows import readable_rows
from knockout.tracking import BackgroundMirror, Handle, State
from knockout.training.execute import Execution
from knockout.training.metrics import segments
from knockout.training.spec import METRICS, RESULT


class Mirroring:
    """Feeds the mirror; does nothing when it is switched off."""

    def __init__(self, ledger: Ledger, *, enabled: bool) -> None:
        self.workspace = ledger.workspace
        self.mirror = BackgroundMirror(self.workspace.folder) if enabled else None
        self.parent: Handle | None = None
        self.study = ""
        self.handles: dict[str, Handle] = {}
        self.shown: dict[str, str] = {}
        if self.mirror is not None:
            self.mirror.perform("what earlier commands missed", lambda mirror: catch_up(ledger, mirror=mirror))

    def open_submission(self, plan: Plan, *, submission: str) -> None:
        """The parent run, with the study as it was written."""
        if self.mirror is None:
            return
        study, self.study = plan.study, plan.study.study
        self.parent = self.mirror.open_submission(
            study.study,
            submission=submission,
            tags={"study": study.study, "submission": submission, "role": "submission"},
            params={
                "question": study.question,
                "corpus": study.corpus,
                "sizes": ", ".join(study.size_names),
                "seeds": len(study.seed_list),
                "runs": len(plan.runs),
            },
            artifacts={"study.yaml": plan.text, "plan.txt": plan_text(plan)},
        )

    def open_run(self, run: BoundRun) -> None:
        """A child run, when the run begins."""
        if self.mirror is None or self.parent is None:
            return
        cell = run.cell
        split = count(cell.architecture).to_dict()["parameters"]
        self.handles[run.identity] = self.mirror.open_run(
            self.parent,
            name=run.name,
            identity=run.identity,
            tags={
                "study": self.study,
                "variant": cell.variant,
                "size": cell.size,
                "seed": run.planned.seed,
                "identity": run.identity,
                "role": run.planned.role,
                **({} if cell.matched is None else {"match_error": f"{cell.matched.error:+.4%}"}),
            },
            params=settings_of(run.meaning) | {"steps": cell.num_steps},
            split=split,
            corpus={"name": run.corpus_folder.name, "digest": run.meaning["corpus"]},
            artifacts={"meaning.json": json.dumps(run.meaning, indent=1, sort_keys=True)},
        )

    def metrics(self, run: BoundRun) -> None:
        """What the run has measured since it was last looked at."""
        folder = self.workspace.run(run.identity)
        newest = [path.name for path in segments(folder)][-1:]
        state = "".join(newest)
        if self.mirror is None or run.identity not in self.handles or self.shown.get(run.identity) == state:
            return
        self.shown[run.identity] = state
        self.mirror.metrics(self.handles[run.identity], readable_rows(folder), planned_steps=run.cell.num_steps)

    def close_run(self, run: BoundRun, *, execution: Execution) -> None:
        """The end of a run that was trained here: the last of its curves, its final values, how it ended."""
        handle = self.handles.pop(run.identity, None)
        if self.mirror is None or handle is None or execution.run.state not in get_args(State):
            return
        folder, ended = self.workspace.run(run.identity), execution.run
        rows = readable_rows(folder)
        self.mirror.metrics(handle, rows, planned_steps=run.cell.num_steps)
        files = {name: folder / name for name in (RESULT, METRICS) if is_file(folder / name)}
        self.mirror.close_run(
            handle,
            state=cast(State, ended.state),
            reason=ended.reason or "",
            final=ended.metrics,
            artifacts=files,
            series=rows if is_sealed(ended, folder=folder) else (),
            planned_steps=run.cell.num_steps,
        )

    def close_submission(self, concluding: Concluding) -> None:
        """The verdicts and the report, on the parent run."""
        if self.mirror is not None and self.parent is not None:
            self.mirror.close_submission(
                self.parent,
                state=cast(State, concluding.state),
                verdicts=concluding.facts["verdicts"],
                report=concluding.report,
                tags={**fairness_tag(concluding.facts["fairness"]), **_reason(concluding.reason)},
            )
            self.parent = None

    def give_up(self, *, state: str, reason: str) -> None:
        """The end of a submission that came to no verdicts, on the parent run."""
        if self.mirror is not None and self.parent is not None:
            self.mirror.close_submission(
                self.parent, state=cast(State, state), verdicts=(), report=None, tags=_reason(reason)
            )

    def close(self, *, say: Say) -> str | None:
        """Wait for the mirror; a warning that names what it missed. `say` is told what is waited for, if it takes long."""
        return self.mirror.close(timeout_seconds=60.0, say=say) if self.mirror is not None else None


def _reason(reason: str | None) -> dict[str, str]:
    """The tag that says why a submission is not done."""
    return {"reason": reason} if reason is not None else {}
