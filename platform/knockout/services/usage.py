"""What processes have cost so far: processor time and memory, from /proc (Linux).

The invariant: a process that has ended is counted once, by whoever waited for it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from knockout.services.processes import PROC

TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """What one process has used."""

    cpu_seconds: float
    """Of its own threads."""
    children_cpu_seconds: float
    """Of its children that have ended, and of theirs."""
    peak_bytes: int
    """The most memory that it had."""


def usage(pid: int) -> Usage | None:
    """What a process has used so far (proc_pid_stat(5), fields 14 to 17; VmHWM); None when it has ended."""
    try:
        fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        status = (PROC / str(pid) / "status").read_text()
    except OSError:
        return None
    own, own_system, children, children_system = (int(field) * TICK_SECONDS for field in fields[11:15])
    peak = next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")), None)
    if peak is None:  # a zombie has no memory
        return None
    return Usage(own + own_system, children + children_system, peak)
