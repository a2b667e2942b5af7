"""Who is who among processes: identity that survives the reuse of process ids, and who listens on a port.

The invariant: a process is known by (host, boot, process id, start time), so that no signal ever reaches a
stranger who was given an old number. Start times come from /proc, or from `ps` where there is none.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

PROC = Path("/proc")
LISTENING = "0A"


@dataclass(frozen=True)
class Process:
    """One process of one boot of one host. `start` is the kernel's start time, opaque and only compared."""

    host: str
    boot: str
    pid: int
    start: str

    def as_dict(self) -> dict[str, object]:
        """Plain data for a state file."""
        return asdict(self)


def identify(pid: int) -> Process | None:
    """The running process with this id on this host, or None (a zombie is not running)."""
    start = start_time(pid)
    return None if start is None else Process(host=socket.gethostname(), boot=boot_id(), pid=pid, start=start)


def is_alive(process: Process) -> bool:
    """Whether that very process still runs, on this host and boot."""
    return identify(process.pid) == process


def boot_id() -> str:
    """Changes with every boot; empty where the kernel does not say."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_time(pid: int) -> str | None:
    """When the kernel started the process (proc_pid_stat(5), field 22), or None if it does not run."""
    if not (PROC / "self").exists():
        return start_time_by_ps(pid)
    try:
        fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def start_time_by_ps(pid: int) -> str | None:
    """The same from `ps`, to the second."""
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    state, _, start = subprocess.run(command, capture_output=True, text=True).stdout.strip().partition(" ")
    return start.strip() if start and not state.startswith("Z") else None


def signal_in_words(code: int) -> str:
    """The signal that ended a process, by its exit code, which is minus the signal's number."""
    name = signal.Signals(-code).name
    return f"{name} (out of memory?)" if name == "SIGKILL" else name


def parent(pid: int) -> int | None:
    """The parent's process id, or None (also where there is no /proc)."""
    try:
        return int((PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def is_below(pid: int, *, ancestor: int) -> bool:
    """Whether a process is the ancestor or one of its descendants."""
    current: int | None = pid
    while current is not None and current > 1:
        if current == ancestor:
            return True
        current = parent(current)
    return False


def all_pids() -> list[int]:
    """Every process id in /proc; empty where there is none."""
    return [int(path.name) for path in PROC.iterdir() if path.name.isdigit()] if PROC.is_dir() else []


def marked(mark: str) -> list[Process]:
    """This user's running processes that were started with the environment entry `NAME=value` in `mark`."""
    found = []
    for pid in all_pids():
        try:
            entries = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # another user's, or ended meanwhile
        if mark.encode() in entries and (process := identify(pid)) is not None:
            found.append(process)
    return found


def end(processes: Iterable[Process], *, grace_seconds: float) -> bool:
    """SIGTERM, after the grace SIGKILL for what is left. Returns whether all are gone 5 s after that."""
    left = list(processes)
    signal_each(left, number=signal.SIGTERM)
    left = await_end(left, seconds=grace_seconds)
    signal_each(left, number=signal.SIGKILL)
    return not await_end(left, seconds=5.0)


def signal_each(processes: Iterable[Process], *, number: int) -> None:
    """Signal those that still run."""
    for process in processes:
        try:
            if is_alive(process):
                os.kill(process.pid, number)
        except ProcessLookupError:
            continue


def await_end(processes: Iterable[Process], *, seconds: float) -> list[Process]:
    """Wait for processes to end. Returns those that still run after the time."""
    left, deadline = list(processes), time.monotonic() + seconds
    while (left := [process for process in left if is_alive(process)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def free_port() -> int:
    """A port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def refusal(port: int) -> str | None:
    """Why the loopback port cannot be bound now, or None; `taken` if someone listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return "taken" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
    return None


def listener(port: int) -> int | None:
    """The process id that listens on a local port, as far as this user can see (/proc/net/tcp)."""
    sockets = {f"socket:[{inode}]" for inode in listening_inodes(port)}
    for pid in all_pids() if sockets else ():
        if sockets.intersection(descriptors(pid)):
            return pid
    return None


def descriptors(pid: int) -> Iterator[str]:
    """What a process has open, as /proc names it; nothing of another user's process."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(f"{folder}/{name}")
        except OSError:
            continue  # closed meanwhile


def listening_inodes(port: int) -> list[str]:
    """Socket inodes that listen on a port, IPv4 and IPv6; columns as in proc_pid_net(5)."""
    found = []
    for table in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue  # no /proc, or no IPv6
        columns = [line.split() for line in lines]
        found += [c[9] for c in columns if c[3] == LISTENING and int(c[1].rpartition(":")[2], 16) == port]
    return found


def describe(pid: int | None) -> str:
    """`process 123 (command line)` for a message; says so if it cannot be seen."""
    if pid is None:
        return "a process that this user cannot see"
    try:
        written = (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        written = ""
    words = " ".join(written.split())  # code given with -c has lines
    return f"process {pid} ({words[:160]})" if words else f"process {pid}"
