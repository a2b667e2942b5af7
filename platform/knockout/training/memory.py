"""The most memory that a run needed, beyond what its process held when it began.

A run is forked from a parent that has torch and Lightning in memory; those pages are no cost of the run. The invariant:
measuring changes nothing that a run computes.
"""

from __future__ import annotations

import resource
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import torch

PROC = Path("/proc/self")
RESET_PEAK = "5"
"""What /proc/PID/clear_refs takes to set the largest resident size back to the present one (proc(5))."""


class PeakMemory(ABC):
    """Counts from its making on."""

    @abstractmethod
    def read(self) -> int:
        """The most bytes that were in use at one time so far."""


class CudaMemory(PeakMemory):
    """Of tensors on the GPU, as torch's allocator counts them."""

    def __init__(self) -> None:
        torch.cuda.reset_peak_memory_stats()

    def read(self) -> int:
        """See PeakMemory."""
        return torch.cuda.max_memory_allocated()


class ResidentMemory(PeakMemory):
    """Of this process on Linux: its largest resident size, less what was resident at the start.

    Pages of files (libraries, mapped shards) are taken off too: the system can drop them at any time, and how many there
    are depends on who else has read the file. Those that come in after the peak, yet before the reading, are taken off all
    the same; so the peak is set back at every reading, and what training needs again and again is read in full. The heap
    keeps what was freed, in huge pages where the system has some: equal runs differ by some tens of megabytes.
    """

    def __init__(self) -> None:
        self.most = 0
        self.held = _held(self._set_back())

    def read(self) -> int:
        """See PeakMemory."""
        status = _status()
        self.most = max(self.most, status["VmHWM"] - status["RssFile"] - self.held)
        self._set_back()
        return self.most

    @staticmethod
    def _set_back() -> dict[str, int]:
        (PROC / "clear_refs").write_text(RESET_PEAK)
        return _status()


class LargestSize(PeakMemory):
    """By how much the largest resident size of this process has grown, on systems that cannot set it back."""

    def __init__(self) -> None:
        self.before = _largest_size()

    def read(self) -> int:
        """See PeakMemory."""
        return _largest_size() - self.before


def watch_memory(*, device: str) -> PeakMemory:
    """Begin to count, on the device of a run."""
    if device == "cuda":
        return CudaMemory()
    try:
        return ResidentMemory()
    except (OSError, KeyError):  # no /proc, or one that is read-only or says less
        return LargestSize()


def _held(status: Mapping[str, int]) -> int:
    """What is resident beside pages of files, in bytes."""
    return status["VmRSS"] - status["RssFile"]


def _status() -> dict[str, int]:
    """The sizes that /proc/self/status gives, in bytes."""
    lines = (line.split() for line in (PROC / "status").read_text().splitlines())
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines if words[-1:] == ["kB"]}


def _largest_size() -> int:
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else 1024 * size
