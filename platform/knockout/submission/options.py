"""How a submission is executed; nothing here bears identity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from knockout.declare.parallelism import Parallelism, Strategy
from knockout.declare.plan import Cell
from knockout.errors import InputError


@dataclass(frozen=True)
class Options:
    """What the command line says of an execution."""

    slots: int | None = None
    """Runs at a time; None: one for each core, or for each GPU where there are some."""
    run_seconds: float | None = None
    """Longest time that a run may take; None: what the study declares."""
    study_seconds: float | None = None
    """Longest time that the submission may take; None: what the study declares."""
    mlflow: bool = True
    """Whether runs are mirrored to MLflow."""
    prefect: bool = True
    """Whether Prefect is to have a flow run of the submission."""
    check_pruning: bool = False
    """Whether pruned trials are trained to their ends as well."""
    devices: int | None = None
    """Devices that each run takes; None: what the study declares."""
    strategy: Strategy | None = None
    """What the devices of a run share; None: what the study declares."""

    def parallelism(self, declared: Parallelism, *, cells: Iterable[Cell]) -> Parallelism:
        """How many devices each run takes, with what the command line says laid over what the study declares.

        Raises:
            InputError: a cell's micro-batches cannot be divided among so many.
        """
        changes = {"devices": self.devices, "strategy": self.strategy}
        chosen = declared.model_copy(update={name: value for name, value in changes.items() if value is not None})
        for cell in cells:
            if (rule := chosen.undivided(cell.recipe)) is not None:
                raise InputError(f"--devices: {rule}: {cell.variant} · {cell.size}")
        return chosen
