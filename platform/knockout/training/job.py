"""A run on several devices: the run's own process forks a process for each, and watches them.

The invariant: all ranks are in the run's process group, and none outlives the others. The first that ends in any other way
than by finishing, or by stopping when it was asked to, ends them all; the run's exit code is then that rank's, and the last
line of its log says which it was.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from knockout.services.processes import signal_in_words
from knockout.training.dying import die_with
from knockout.training.processes import exit_code_of
from knockout.training.spec import EXIT_STOPPED, Runtime

GRACE_SECONDS = 0.5
"""After the first bad end, for the others to end by themselves: of several, a signal explains more than what it caused."""
LOOPBACK = {"linux": "lo", "darwin": "lo0"}
CLEAN = (0, EXIT_STOPPED)

Work = Callable[[int, socket.socket], int]
"""What a rank does, by its number, with the socket at which ranks meet; its exit code."""


@dataclass(frozen=True)
class Ended:
    """A rank, and how it ended: an exit code, or minus a signal."""

    rank: int
    code: int


def train_on_devices(folder: Path, *, runtime: Runtime) -> int:
    """Train the run in `folder`, a process for each of its devices.

    Returns:
        The exit code: 0 with a sealed result, 143 when it was asked to stop, or that of the rank that ended it.
    """
    code, said = watch(
        lambda rank, meeting: _train_rank(folder, runtime=runtime, rank=rank, meeting=meeting), runtime.devices
    )
    if said is not None:
        os.write(2, f"{said}\n".encode())
    return code


def watch(work: Work, num_ranks: int) -> tuple[int, str | None]:
    """Fork so many ranks and wait for them; the exit code, and in a sentence what ended them early."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is sent to the whole group, and the ranks heed it
    with socket.create_server(("127.0.0.1", 0), backlog=num_ranks) as meeting:
        alive = {_fork(work, rank=rank, meeting=meeting): rank for rank in range(num_ranks)}
    ended: list[Ended] = []
    while alive:
        ended.append(_wait(alive))
        if ended[-1].code not in CLEAN:
            ended += _end(alive)
    return _outcome(ended, num_ranks=num_ranks)


def _outcome(ended: list[Ended], *, num_ranks: int) -> tuple[int, str | None]:
    """Of several bad ends, that by a signal from elsewhere is the cause; else the first one."""
    bad = [one for one in ended if one.code not in CLEAN]
    if not bad:
        return max(one.code for one in ended), None
    cause = min(bad, key=lambda one: one.code >= 0)
    if cause.code < 0:
        return 1, f"rank {cause.rank} of {num_ranks} was ended by {signal_in_words(cause.code)}"
    return cause.code, f"rank {cause.rank} of {num_ranks} ended with exit code {cause.code}; its error stands above"


def _fork(work: Work, *, rank: int, meeting: socket.socket) -> int:
    owner = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            die_with(owner)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            code = exit_code_of(lambda: work(rank, meeting))
        finally:
            os._exit(code)
    return pid


def _wait(alive: dict[int, int]) -> Ended:
    """Wait until any rank ends."""
    pid, status = os.waitpid(-1, 0)
    return Ended(alive.pop(pid), os.waitstatus_to_exitcode(status))


def _end(alive: dict[int, int]) -> list[Ended]:
    """Let the other ranks end by themselves for a moment, then kill them; only the former are told."""
    ended, until = [], time.monotonic() + GRACE_SECONDS
    while alive and time.monotonic() < until:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            ended.append(Ended(alive.pop(pid), os.waitstatus_to_exitcode(status)))
        else:
            time.sleep(0.01)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    for pid in list(alive):
        os.waitpid(pid, 0)
    alive.clear()
    return ended


def _train_rank(folder: Path, *, runtime: Runtime, rank: int, meeting: socket.socket) -> int:
    """In a rank's process: meet the others, train, part."""
    import torch.distributed as dist

    from knockout.training.ranks import Copies, Parts
    from knockout.training.run import train

    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK.get(sys.platform, "lo"))
    port, first = meeting.getsockname()[1], rank == 0
    store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]  # torch documents it
        "127.0.0.1",
        port,
        world_size=runtime.devices,
        is_master=first,
        master_listen_fd=os.dup(meeting.fileno()) if first else None,
    )
    meeting.close()
    if runtime.device == "cuda":
        import torch

        torch.cuda.set_device(rank)
    backend = "nccl" if runtime.device == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=runtime.devices)
    kind = Parts if runtime.strategy == "fsdp" else Copies
    code = train(folder, runtime=runtime, ranks=kind(rank=rank, size=runtime.devices, device=runtime.device))
    dist.destroy_process_group()
    return code
