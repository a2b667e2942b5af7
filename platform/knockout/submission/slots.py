"""Where runs execute: one slot for each core, one thread each, or one for each GPU where there are GPUs."""

from __future__ import annotations

import os
import queue
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Slot:
    """A core, or a GPU."""

    device: str
    environment: Mapping[str, str] = field(default_factory=dict)


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
