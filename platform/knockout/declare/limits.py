"""How long work may take. Nothing here bears identity: what a limit cuts off goes on with the next command."""

from __future__ import annotations

from knockout.declare.base import Declaration, PositiveFloat


class Limits(Declaration):
    """The longest times of one command. Runs that are cut off have a checkpoint."""

    run_seconds: PositiveFloat | None = None
    """Longest time that one run may train, in seconds, over 0; without it, as long as it takes."""
    study_seconds: PositiveFloat | None = None
    """Longest time that the whole study may take, in seconds, over 0; without it, as long as it takes."""
