"""Which process holds a lease: host, pid and start time, since a pid alone is used again after its process dies."""

from __future__ import annotations

import os
import socket
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Owner:
    """A process, named so that it can never be mistaken for a later one."""

    host: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def alive(self) -> bool | None:
        """Whether the process still lives; None when it is another host's and cannot be seen from here."""
        if self.host != host_name():
            return None
        return start_time(self.pid) == self.started


@cache
def host_name() -> str:
    """The name under which this machine is known in leases."""
    return socket.gethostname()


def this_process() -> Owner:
    """The process that asks."""
    return Owner(host_name(), os.getpid(), start_time(os.getpid()) or "")


def start_time(pid: int) -> str | None:
    """When the process started, in the system's own terms; None when there is no such process, or a zombie of it."""
    stat = Path(f"/proc/{pid}/stat")
    if not Path("/proc/self/stat").exists():
        shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return shown.stdout.strip() or None
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else f"{fields[19]}@{_boot()}"


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
