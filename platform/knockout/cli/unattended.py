"""One `knockout run` after another, each in a process of its own.

The invariant: whatever ends a study, also a fault of the program, the next one starts; and a study ends with the command
that started it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from knockout.services.guard import PR_SET_PDEATHSIG, linux_prctl

INTERRUPTED = 130
CHILD = "import sys; from knockout.cli.unattended import enter; enter(int(sys.argv.pop(1)))"


def run_command(arguments: Sequence[str], *, silent: bool) -> int:
    """Run a `knockout` command to its end; its exit code. `silent` sends what it prints to standard error.

    Ctrl-C and SIGTERM stop the command as they would alone, and are raised as KeyboardInterrupt when it has ended.
    """
    from knockout.cli.submitting import stopping

    with stopping():
        # A session of its own, so that Ctrl-C reaches it once, by the signal below.
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(os.getpid()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr if silent else None,
            start_new_session=True,
        )
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    return code


def enter(owner: int) -> None:
    """The command's side: be stopped when the owner is gone, and run."""
    from knockout.cli import main

    linux_prctl()(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != owner:
        sys.exit(INTERRUPTED)
    main()
