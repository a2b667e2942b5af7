"""The claims of studies decided by training on a pool, as a flow run.

The invariant: it is Completed only when every study that was chosen came to its verdicts; which those are is no matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.states import Completed, Failed

from bringing import interrupted
from knockout.cli.ending import stopping
from knockout.cli.training_claims import Execution, check_names, show_trained, train_all
from knockout.declare.claimed import choose_studies, claimed_studies
from knockout.declare.claims_file import load_claims
from knockout.errors import InputError
from knockout.ledger.workspace import Workspace
from reconciling import state_of


def decide(only: Sequence[str], *, size: str | None, pool: str, workspace: Workspace) -> State[Any]:
    """Bring studies to their verdicts, one after the other, and show them; the state says how many there are of each.

    Raises:
        InputError: a name is neither a claim's nor a study's, or is one that calculation decides.
    """
    studies = claimed_studies(size=size)
    check_names(only, claims=load_claims(), studies=studies)
    chosen = choose_studies(studies, names=only)
    if not chosen:
        raise InputError(f"no study here decides {' or '.join(only) or 'a claim'} by training")
    place = workspace.folder
    execution = Execution(False, None, None, None, prefect=True, mlflow=True, workspace=place, pool=pool)
    try:
        with stopping():
            missed = train_all(chosen, execution=execution, silent=False)
            rows = show_trained(chosen, workspace=place, silent=False)
    except (KeyboardInterrupt, TerminationSignal):
        ending = interrupted()
        return state_of(ending.state, reason=ending.reason)
    count = Counter(row["verdict"] for row in rows)
    said = ", ".join(f"{number} {outcome}" for outcome, number in count.most_common())
    return Failed(message=f"{'; '.join(missed)}; {said}") if missed else Completed(message=said)
