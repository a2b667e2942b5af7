"""Where runs execute: one slot for each core, one thread each, or one for each GPU where there are GPUs.

A run on several devices has a slot of as many cores or GPUs. The invariant: no GPU is in two slots of one command, unless
more runs at a time are asked for than there are GPUs.
"""

from __future__ import annotations

import itertools
import os
import queue
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from knockout.errors import RunError
from knockout.services.locks import acquired

GPUS = Path("/proc/driver/nvidia/gpus")
"""A folder for each."""
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Slot:
    """The cores, or the GPUs, of one run."""

    device: str
    environment: Mapping[str, str] = field(default_factory=dict)


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_slots() -> int:
    """Runs of one device that will execute at the same time, without asking torch: the GPUs that the driver lists, or else
    cores."""
    return listed_gpus() or usable_cores()


def listed_gpus() -> int:
    """The GPUs that the driver lists and this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = len(list(GPUS.iterdir())) if GPUS.is_dir() else 0
    return gpus if visible is None else min(gpus, len([name for name in visible.split(",") if name]))


def enough(devices: int, *, num_gpus: int) -> None:
    """Raises RunError where this machine has fewer GPUs, or cores if it has no GPU, than a run takes."""
    there = num_gpus or usable_cores()
    if devices > there:
        known = f"{there} {'GPU' if num_gpus else 'core'}{'s' if there > 1 else ''}"
        raise RunError(
            f"runtime.devices: a run takes {devices} devices, and this machine has {known}: give `--devices {there}` or less"
        )


def slot_queue(num_slots: int, *, num_gpus: int, devices: int = 1) -> queue.Queue[Slot]:
    """The free slots, each of so many devices; whoever takes one gives it back. Raises RunError as `enough`."""
    enough(devices, num_gpus=num_gpus)
    free: queue.Queue[Slot] = queue.Queue()
    for index in range(num_slots):
        free.put(_slot(range(index * devices, (index + 1) * devices), num_gpus=num_gpus))
    return free


@contextmanager
def host_slot(*, num_gpus: int, devices: int = 1) -> Iterator[Slot]:
    """A slot that no other process of this machine has while it is entered: GPUs, waited for, or else cores.

    How many take a core is up to whoever starts them; a GPU is held by a lock of the kernel, which ends with its holder. Of
    several GPUs all are held at once, or none while it is waited for the others.

    Raises:
        RunError: as `enough`.
    """
    enough(devices, num_gpus=num_gpus)
    if not num_gpus:
        yield Slot("cpu")
        return
    folder = Path(tempfile.gettempdir()) / f"knockout-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    while True:
        with ExitStack() as locks:
            held = list(itertools.islice(_held(folder, num_gpus=num_gpus, locks=locks), devices))
            if len(held) == devices:
                yield _slot(held, num_gpus=num_gpus)
                return
        time.sleep(POLL_SECONDS)


def _held(folder: Path, *, num_gpus: int, locks: ExitStack) -> Iterator[int]:
    """The GPUs that nobody else holds, each held from then on until the locks are left."""
    for index in range(num_gpus):
        lock = locks.enter_context((folder / _visible(index)).open("a"))
        if acquired(lock.fileno()):
            yield index


def _slot(indices: Iterable[int], *, num_gpus: int) -> Slot:
    if not num_gpus:
        return Slot("cpu")
    return Slot("cuda", {"CUDA_VISIBLE_DEVICES": ",".join(_visible(index % num_gpus) for index in indices)})


def _visible(index: int) -> str:
    """The device's name as the user's own CUDA_VISIBLE_DEVICES has it."""
    chosen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return chosen[index] if chosen else str(index)
