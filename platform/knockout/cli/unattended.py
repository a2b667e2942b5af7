"""One `knockout run` after another, each in a process of its own.

The invariant: whatever ends a study, also a fault of the program, the next one starts; and a study ends with the command
that started it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from knockout.cli.ending import stopping
from knockout.cli.signals import INTERRUPTED
from knockout.services.guard import PR_SET_PDEATHSIG, linux_prctl

SAID_SECONDS = 5.0
"""So long the last words are waited for: something that the command left behind may hold its standard error open."""
SAID_LINES = 20
"""So many of a command's last words are kept."""
CHILD = "import sys; from knockout.cli.unattended import enter; enter(int(sys.argv.pop(1)))"


@dataclass(frozen=True)
class Said:
    """How a command ended, and its last words on standard error, in one line."""

    code: int
    words: str


def run_command(arguments: Sequence[str], *, silent: bool) -> int:
    """Run a `knockout` command to its end; its exit code. `silent` sends what it prints to standard error.

    Ctrl-C and SIGTERM stop the command as they would alone, and are raised as KeyboardInterrupt when it has ended. So is
    its end when it alone was stopped.
    """
    code = _run(arguments, stdout=sys.stderr if silent else None, heard=None)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    return code


def hear_command(arguments: Sequence[str]) -> Said:
    """As `run_command`, and also what it said on standard error, which is shown as well; one that alone was stopped has
    ended.
    """
    heard: deque[str] = deque(maxlen=SAID_LINES)
    code = _run(arguments, stdout=None, heard=heard)
    return Said(code, "; ".join(line.strip() for line in heard if line.strip()))


def _run(arguments: Sequence[str], *, stdout: IO[str] | None, heard: deque[str] | None) -> int:
    with stopping():
        # A session of its own, so that Ctrl-C reaches it once, by the signal below.
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(os.getpid()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=None if heard is None else subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        listening = threading.Thread(target=_pass_on, args=(process.stderr, heard), daemon=True)
        listening.start()
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        listening.join(SAID_SECONDS)
    return code


def _pass_on(said: IO[str] | None, heard: deque[str] | None) -> None:
    """Show and keep what is said, where it is heard."""
    if said is None or heard is None:
        return
    with said:
        for line in said:
            print(line, end="", file=sys.stderr, flush=True)
            heard.append(line)


def enter(owner: int) -> None:
    """The command's side: be stopped when the owner is gone, and run."""
    from knockout.cli import main

    linux_prctl()(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != owner:
        sys.exit(INTERRUPTED)
    main()
