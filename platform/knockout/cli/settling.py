"""What a command does before anything else: set right what dead processes left."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from knockout.ledger.store import Ledger


def set_right(ledger: Ledger) -> None:
    """Set it right in the ledger and in MLflow; what MLflow could not be told is said on standard error."""
    from knockout.submission import owed

    if (missed := owed.settle(ledger)) is not None:
        print(missed, file=sys.stderr)
