"""What brings a submission's runs to their ends: processes of this machine, as many at a time as there are slots.

The invariant: a run is trained under a lease of the ledger, whoever else asks for it, and its slot is given back however
it ends.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Protocol

from knockout.declare.parallelism import Parallelism
from knockout.errors import RunEnded
from knockout.ledger.process import Owner
from knockout.ledger.store import Ledger
from knockout.services.environment import quiet_environment
from knockout.services.waiting import Say
from knockout.submission.bind import BoundRun
from knockout.submission.slots import Slot, enough, listed_gpus, slot_queue, usable_cores
from knockout.training.execute import Early, Execution, Limits, execute, reuse
from knockout.training.launcher import Nursery
from knockout.training.spec import Runtime

MAX_GPUS = 16
"""Of one machine."""


class Hands(Protocol):
    """What brings runs to their ends, wherever that is. Every method may be called from any thread."""

    @property
    def num_slots(self) -> int:
        """Runs that execute at the same time."""
        ...

    @property
    def num_threads(self) -> int:
        """Threads that suffice to keep every slot busy."""
        ...

    def train(self, run: BoundRun, *, early: Early, began: Callable[[], None]) -> Execution:
        """Bring a run to its end; `began` is called when it is claimed, or found to have a result.

        Raises:
            RunEnded: it came to no end that the ledger knows.
        """
        ...

    def close(self) -> None:
        """End everything that still trains."""
        ...


class LocalHands:
    """Its parent of the training processes starts when it is told to get ready, or with the first run that needs it."""

    def __init__(
        self, ledger: Ledger, *, owner: Owner, limits: Limits, slots: int | None, parallelism: Parallelism, say: Say
    ) -> None:
        """`say` is told what people should know of the files that a run had left, as soon as it is known."""
        enough(parallelism.devices, num_gpus=listed_gpus())
        self.ledger = ledger
        self.owner = owner
        self.limits = limits
        self.slots = slots
        self.parallelism = parallelism
        self.say = say
        self.starting = threading.Lock()
        self.nursery: Nursery | None = None
        self.counting = threading.Lock()
        self.free: queue.Queue[Slot] | None = None

    def get_ready(self) -> Nursery:
        """Start the parent of the training processes, in the background, where it was not yet."""
        folder = self.ledger.workspace.folder
        with self.starting:
            if self.nursery is None:
                self.nursery = Nursery(quiet_environment(folder), log=folder / "nursery.log")
            return self.nursery

    @property
    def num_slots(self) -> int:
        """Runs that execute at the same time.

        Raises:
            RunError: the parent of the training processes did not start.
        """
        return self.slots or max(1, (self.get_ready().num_gpus() or usable_cores()) // self.parallelism.devices)

    @property
    def num_threads(self) -> int:
        """Threads that suffice to keep every slot busy, known before the devices are counted."""
        return self.slots or max(usable_cores(), MAX_GPUS)

    def train(self, run: BoundRun, *, early: Early, began: Callable[[], None]) -> Execution:
        """Bring a run to its end, once a slot is free; `began` is called when it is claimed, or found to have a result.

        A run that has its end already takes no slot.

        Raises:
            RunEnded: the submission ended before the run had its slot.
        """
        if (found := reuse(run.identity, ledger=self.ledger, early=early)) is not None:
            began()
            return found
        slots = self._slots()
        slot = slots.get()
        try:
            if (stop := self.limits.stop).is_set():
                raise RunEnded(run.name, state=stop.ending.state, reason=stop.ending.reason)
            return execute(
                run.identity,
                ledger=self.ledger,
                owner=self.owner,
                nursery=self.get_ready(),
                limits=self.limits,
                early=early,
                began=began,
                say=lambda note: self.say(f"{run.name}: {note}"),
                runtime=Runtime(corpus=str(run.corpus_folder), device=slot.device, **self.parallelism.model_dump()),
                environment=slot.environment,
            )
        finally:
            slots.put(slot)

    def close(self) -> None:
        """End every process that still trains."""
        if self.nursery is not None:
            self.nursery.close()

    def _slots(self) -> queue.Queue[Slot]:
        """The free slots; counted when the first run asks, since a submission that only reuses need not wait for devices."""
        nursery = self.get_ready()
        with self.counting:
            if self.free is None:
                self.free = slot_queue(self.num_slots, num_gpus=nursery.gpus, devices=self.parallelism.devices)
            return self.free
