"""A guard around one command: nothing that was started under it outlives its owner.

    python -I -S guard.py [--grace SECONDS] [--cwd FOLDER] [--detached] -- COMMAND...

The owner holds the other end of the guard's standard input. When that closes (the owner ended, however it
ended), when the owner's process is gone, or on SIGTERM, SIGINT or SIGHUP, every descendant gets SIGTERM, then
after the grace SIGKILL, until none is left. When the command ends by itself, what it left behind is ended the
same way, and the guard exits with its code (128 + signal number if a signal ended it).

With `--detached` there is no owner: the guard leaves the caller's session, prints its process id on standard
output, and runs until it is signalled. The command's output goes to standard error.

The invariant: the guard ends only when it has no descendants. Orphans cannot escape, because the guard is a
child subreaper (prctl(2)); should the guard itself be killed, the kernel kills the command
(PR_SET_PDEATHSIG). Where there is no /proc, the command's process group is signalled instead. Standard
library only, and few imports: it starts in 20 ms.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
DEFAULT_GRACE_SECONDS = 5.0
USAGE = "usage: guard.py [--grace SECONDS] [--cwd FOLDER] [--detached] -- COMMAND..."


class Options:
    """What the command line asked for. A plain class: `dataclasses` would double the time to start."""

    def __init__(self, *, command: list[str], grace_seconds: float, folder: str | None, detached: bool) -> None:
        self.command = command
        self.grace_seconds = grace_seconds
        self.folder = folder
        self.detached = detached


def parse(arguments: Sequence[str]) -> Options:
    """The options before `--` and the command after it; SystemExit(2) on anything else."""
    grace_seconds, folder, detached = DEFAULT_GRACE_SECONDS, None, False
    rest = list(arguments)
    while rest and rest[0] != "--":
        option = rest.pop(0)
        if option == "--detached":
            detached = True
        elif option == "--grace" and rest:
            grace_seconds = float(rest.pop(0))
        elif option == "--cwd" and rest:
            folder = rest.pop(0)
        else:
            sys.stderr.write(f"guard.py: unknown option {option!r}; {USAGE}\n")
            raise SystemExit(2)
    if len(rest) < 2:
        sys.stderr.write(f"guard.py: no command after --; {USAGE}\n")
        raise SystemExit(2)
    return Options(command=rest[1:], grace_seconds=grace_seconds, folder=folder, detached=detached)


def linux_prctl() -> Callable[[int, int], object]:
    """prctl(2) of the C library; a function that does nothing where it is missing."""
    if not sys.platform.startswith("linux"):
        return lambda option, value: None
    import ctypes  # 4 ms, and only Linux needs it

    library = ctypes.CDLL(None, use_errno=True)
    return lambda option, value: library.prctl(option, value, 0, 0, 0)


def detach() -> None:
    """Become a process of its own session whose parent is gone; the caller reads the new process id."""
    if child := os.fork():
        os.write(1, f"{child}\n".encode())
        os._exit(0)
    os.setsid()
    os.dup2(2, 1)


def start(options: Options, *, prctl: Callable[[int, int], object]) -> int:
    """Fork and execute the command in its own session, tied to the guard's life. Returns its process id."""
    guard = os.getpid()
    child = os.fork()
    if child:
        return child
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:  # the guard died before the line above could tie the command to it
        os._exit(137)
    signal.set_wakeup_fd(-1)
    for number in (*STOP_SIGNALS, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if options.folder is not None:
            os.chdir(options.folder)
        os.execvp(options.command[0], options.command)
    except OSError as error:
        os.write(2, f"guard.py: cannot start {options.command[0]!r}: {error}\n".encode())
    os._exit(127)


def parents() -> dict[int, int]:
    """Every process's parent, from /proc; empty where there is no /proc."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue  # it ended between the listing and the reading
            found[int(name)] = int(fields[1])
    return found


def descendants(ancestor: int) -> list[int]:
    """Everything below a process, nearest first; zombies too."""
    children: dict[int, list[int]] = {}
    for process, parent in parents().items():
        children.setdefault(parent, []).append(process)
    found, queue = [], [ancestor]
    while queue:
        below = children.get(queue.pop(0), [])
        found.extend(below)
        queue.extend(below)
    return found


def send(number: int, *, to: Sequence[int], child: int) -> None:
    """Signal each process, and where /proc is missing the command's group, which its session leader heads."""
    for target in to:
        try:
            os.kill(target, number)
        except ProcessLookupError:
            continue
    if not os.path.isdir("/proc/self"):
        try:
            os.killpg(child, number)
        except (ProcessLookupError, PermissionError):
            return


def reap() -> dict[int, int]:
    """Collect every ended child. Returns exit codes by process id, 128 + number for a signal."""
    ended: dict[int, int] = {}
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if process == 0:
            return ended
        code = os.waitstatus_to_exitcode(status)
        ended[process] = code if code >= 0 else 128 - code


def sweep(child: int, *, grace_seconds: float) -> None:
    """End every descendant: SIGTERM once to each, SIGKILL after the grace, until there is none."""
    guard, asked, deadline = os.getpid(), set[int](), time.monotonic() + grace_seconds
    while True:
        reap()
        left = descendants(guard)
        if not left and not has_children():
            return
        if time.monotonic() < deadline:
            send(signal.SIGTERM, to=[process for process in left if process not in asked], child=child)
            asked.update(left)
        else:
            send(signal.SIGKILL, to=left, child=child)
        time.sleep(0.02)


def has_children() -> bool:
    """Whether any child, ended or not, is left to wait for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def watch(child: int, *, owned: bool, wakeup: int, owner: int) -> int:
    """Wait for the command's end, the owner's end, or a signal. Returns the exit code of the guard."""
    poll = select.poll()
    poll.register(wakeup, select.POLLIN)
    handle = owner_handle(owner) if owned else None
    if owned:
        poll.register(0, select.POLLIN)
    if handle is not None:
        poll.register(handle, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if wakeup in ready:
            received = os.read(wakeup, 4096)
            code = reap().get(child)
            if code is not None:
                return code
            stopping = [number for number in received if number in STOP_SIGNALS]
            if stopping:
                return 128 + stopping[0]
        if (handle in ready) or (0 in ready and not os.read(0, 65536)):
            return 128 + signal.SIGTERM


def owner_handle(owner: int) -> int | None:
    """A descriptor that becomes readable when the owner ends.

    Standard input alone would not do: a child forked by the owner keeps a copy of the other end open.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        handle = os.pidfd_open(owner)
    except OSError:
        return None
    return handle if os.getppid() == owner else None


def listen() -> int:
    """Turn signals into bytes on a pipe; returns the end to read."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    for number in (*STOP_SIGNALS, signal.SIGCHLD):
        signal.signal(number, lambda received, frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    owner = os.getppid()
    prctl = linux_prctl()
    if options.detached:
        detach()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wakeup = listen()
    child = start(options, prctl=prctl)
    code = watch(child, owned=not options.detached, wakeup=wakeup, owner=owner)
    sweep(child, grace_seconds=options.grace_seconds)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
