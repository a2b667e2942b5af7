"""Which process holds a lease: host, pid and start time, since a pid alone is used again after its process dies."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from functools import cache

from knockout.services import processes

SILENT = "gave no sign of life"
"""What is said of a process that is there, or on another host, but does not renew what it holds."""
TOLD = "was told to end"
"""What is said of a process that left its work to others, since its worker or its machine was to stop."""


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


def tells_death(reason: str | None) -> bool:
    """Whether a reason is that of work which ended because its owner died, was taken for dead, or left it to others."""
    return reason is not None and re.match(rf"process \d+ on \S+ (died|{SILENT}|{TOLD})", reason) is not None


def tells_leaving(reason: str | None) -> bool:
    """Whether a reason is that of work which its owner left to others, being told to end: that is no death."""
    return tells_death(reason) and TOLD in (reason or "")


@cache
def host_name() -> str:
    """The name under which this machine is known in leases."""
    return socket.gethostname()


def this_process() -> Owner:
    """The process that asks."""
    return Owner(host_name(), os.getpid(), start_time(os.getpid()) or "")


def start_time(pid: int) -> str | None:
    """When the process started, in the system's own terms, and in which boot; None when there is none, or a zombie."""
    started = processes.start_time(pid)
    return None if started is None else f"{started}@{_boot()}"


@cache
def _boot() -> str:
    return processes.boot_id()[:8]
