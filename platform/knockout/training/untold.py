"""Results that were sealed and never told: their owner died after the run's own process had finished.

The invariant: a run with a whole sealed result is not failed, whoever looks at it next.
"""

from __future__ import annotations

from knockout.ledger.inventory import enter_result, left_by_the_dead
from knockout.ledger.store import Ledger
from knockout.training.result import read_result, remove_checkpoints


def reconcile(ledger: Ledger) -> list[str]:
    """Set right what dead processes left, and take up what they did not come to tell.

    Returns:
        Identities of the runs, and names of the submissions, whose owner is dead; as `Ledger.reconcile`.
    """
    dead = ledger.reconcile()
    for identity in left_by_the_dead(ledger):
        folder = ledger.workspace.run(identity)
        result = read_result(folder)
        if result is None or not enter_result(ledger, identity, result=result):
            continue
        if result["outcome"] == "done":
            remove_checkpoints(folder)  # it may have died before it had tidied up
    return dead
