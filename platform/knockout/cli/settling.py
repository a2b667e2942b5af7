"""What a command does before anything else, or when it has ended something: set right what dead processes left."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from knockout.ledger.store import Ledger


def set_right(ledger: Ledger) -> None:
    """Set it right in the ledger and in MLflow; what MLflow could not be told is said on standard error."""
    from knockout.submission import owed

    if (missed := owed.settle(ledger, say=_say)) is not None:
        _say(missed)


def set_right_in_prefect(ledger: Ledger) -> list[str]:
    """Set it right in Prefect too, where a server is at hand; the submissions of which it showed, or lacked, something else.

    What it could not be told is said on standard error.
    """
    from knockout.cli.flows import load_flow
    from knockout.cli.prefect_server import answering_prefect
    from knockout.errors import ServiceError

    if (server := answering_prefect(ledger.workspace)) is None:
        return []
    try:
        return load_flow("reconciling", server=server).reconcile(ledger)
    except ServiceError as error:
        _say(f"{error}; the next command tells it how submissions ended")
        return []


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
