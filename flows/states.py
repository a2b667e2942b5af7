"""The flows of submissions, and the states in Prefect of what ended in the ledger.

The invariant: the ledger's state and reason are the whole of it, so whoever tells Prefect tells it the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Crashed, Failed

from knockout.ledger.process import tells_death

FLOW = "study"
TRAINING = "training"
"""The flow of one run on a pool; its parameters name the run, and the submission that asked for it."""


def workspace_tag(folder: Path) -> str:
    """The tag of the flow runs of a workspace's submissions: a server may be several workspaces'."""
    return f"workspace {folder}"


def state_of(state: str, *, reason: str | None) -> State[Any]:
    """The state in Prefect of what ended in a state of the ledger."""
    match state:
        case "done" | "diverged":
            return Completed(message=reason)
        case "pruned":
            return Completed(name="Pruned", message=reason)
        case "cancelled":
            return Cancelled(message=reason)
        case "timed-out":
            return Failed(name="TimedOut", message=reason)
    return Crashed(message=reason) if tells_death(reason) else Failed(message=reason)
