"""Preparing a plan's corpora in the background, beside the start of servers and training processes.

The invariant: a preparation that is cut off leaves nothing that is read, so its thread need not be waited for.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

from knockout.corpus.prepare import Prepared, prepare
from knockout.corpus.preparing.engine import Progress
from knockout.declare.plan import Plan
from knockout.ledger.workspace import Workspace
from knockout.submission.bind import vocabularies
from knockout.submission.shared_corpora import fetch_corpora, share_corpus


def begin_preparing(plan: Plan, *, workspace: Workspace, base: Path, progress: Progress) -> Future[dict[int, Prepared]]:
    """Prepare the plan's corpus for each vocabulary, or take it from the workspace's store; what comes of it, by vocabulary.

    `base` is where the declaration's relative paths start.
    """
    preparing: Future[dict[int, Prepared]] = Future()

    def work() -> None:
        try:
            prepared: dict[int, Prepared] = {}
            for vocabulary in vocabularies(plan):
                fetch_corpora(plan.corpus.corpus, vocabulary=vocabulary, workspace=workspace)
                prepared[vocabulary] = prepare(
                    plan.corpus, vocabulary=vocabulary, folder=workspace.corpora, base=base, progress=progress
                )
                share_corpus(prepared[vocabulary], workspace=workspace)
        except BaseException as error:
            preparing.set_exception(error)
        else:
            preparing.set_result(prepared)

    threading.Thread(target=work, name="corpus", daemon=True).start()
    return preparing
