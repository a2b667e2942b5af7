"""Where runs execute: one slot for each core, one thread each, or one for each GPU where there are GPUs."""

from __future__ import annotations

import os
import queue
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

GPUS = Path("/proc/driver/nvidia/gpus")
"""A folder for each."""


@dataclass(frozen=True)
class Slot:
    """A core, or a GPU."""

    device: str
    environment: Mapping[str, str] = field(default_factory=dict)


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_slots() -> int:
    """Runs that will execute at the same time, without asking torch: the GPUs that the driver lists, or else cores."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = len(list(GPUS.iterdir())) if GPUS.is_dir() else 0
    allowed = gpus if visible is None else len([name for name in visible.split(",") if name])
    return min(gpus, allowed) or usable_cores()


def slot_queue(num_slots: int, *, num_gpus: int) -> queue.Queue[Slot]:
    """The free slots; whoever takes one gives it back."""
    free: queue.Queue[Slot] = queue.Queue()
    for index in range(num_slots):
        gpu = {"CUDA_VISIBLE_DEVICES": _visible(index % num_gpus)} if num_gpus else None
        free.put(Slot("cuda", gpu) if gpu is not None else Slot("cpu"))
    return free


def _visible(index: int) -> str:
    """The device's name as the user's own CUDA_VISIBLE_DEVICES has it."""
    chosen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return chosen[index] if chosen else str(index)
