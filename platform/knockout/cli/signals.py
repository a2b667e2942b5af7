"""The signals that end a command.

The invariant: a command that SIGTERM, or a closed terminal, ends has exit code 130, at whatever moment the signal comes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys

INTERRUPTED = 130
"""The exit code that Typer makes of Ctrl-C."""
STOPPED = "knockout: stopped; the same command goes on from here"
ENDING = (signal.SIGTERM, signal.SIGHUP)


def heeded() -> list[signal.Signals]:
    """Those that end this command: not that of a closed terminal, where it was started to outlive it (nohup)."""
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]


def heed() -> None:
    """From here on they end the process at once, as they would by themselves, but with the exit code.

    An exception would be lost in libraries that are just being imported. Work that has something to bring to an end
    enters `stopping`.
    """
    for number in heeded():
        signal.signal(number, lambda *_: _end_at_once(INTERRUPTED, said=f"{STOPPED}\n"))


class stopping:
    """While entered, SIGTERM ends the work as Ctrl-C does: runs stop after their step, with a checkpoint.

    So does a terminal that is closed, unless the command was started to outlive it (nohup). What is ending is not cut short
    by the same signal once more.
    """

    def __enter__(self) -> None:
        self.before = {number: signal.signal(number, self._stop) for number in heeded()}

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _stop(self, *_: object) -> None:
        for number in self.before:
            signal.signal(number, lambda *_: None)
        raise KeyboardInterrupt


def leave(code: int) -> None:
    """The command has ended with a code: a further signal cuts its exit short, and cannot change the code."""
    for number in heeded():
        signal.signal(number, lambda *_: _end_at_once(code))
    atexit.register(_ignore)  # while Python takes itself down it would have no handlers


def _end_at_once(code: int, *, said: str = "") -> None:
    with contextlib.suppress(
        OSError, RuntimeError, ValueError
    ):  # the signal came while it was being written to, or is closed
        sys.stdout.flush()
        os.write(2, said.encode())
    os._exit(code)


def _ignore() -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
