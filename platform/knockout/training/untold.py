"""Results that were sealed and never told: their owner died after the run's own process had finished.

The invariant: a run with a whole sealed result that says what was measured is not failed, whoever looks at it next.
"""

from __future__ import annotations

from knockout.ledger.inventory import enter_result, left_by_the_dead
from knockout.ledger.store import Ledger
from knockout.training.believing import contradiction
from knockout.training.result import read_result, remove_checkpoints
from knockout.training.sharing import share_result


def reconcile(ledger: Ledger) -> list[str]:
    """Set right what dead processes left, and take up what they did not come to tell.

    Returns:
        Identities of the runs, and names of the submissions, whose owner is dead; as `Ledger.reconcile`.
    """
    dead = ledger.reconcile()
    for identity in left_by_the_dead(ledger):
        _enter(ledger, identity)
    return dead


def take_up(ledger: Ledger, identity: str) -> bool:
    """Enter the sealed result of a run that nobody has begun, where one lies here: the ledger that knew it was lost.

    False where there is none, or where it does not say what was measured. Raises WorkspaceError.
    """
    run = ledger.run(identity)
    if run is None or run.state != "planned" or read_result(ledger.workspace.run(identity)) is None:
        return False
    share_result(ledger.workspace, identity)
    return _enter(ledger, identity)


def _enter(ledger: Ledger, identity: str) -> bool:
    folder = ledger.workspace.run(identity)
    result = read_result(folder)
    if result is None or contradiction(folder, result=result) is not None:
        return False
    if not enter_result(ledger, identity, result=result):
        return False
    if result["outcome"] == "done":
        remove_checkpoints(folder)  # it may have died before it had tidied up
    return True
