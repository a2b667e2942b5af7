"""Work that a signal brings to an end: first honestly, with checkpoints and records; when the user insists, at once.

The invariant: the first signal is noted before anything can cut the ending short, so the record tells the true reason.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from knockout.cli.signals import INTERRUPTED, SAME_SECONDS, STOPPING, forget_terminal, heeded, imports, leave_at_once
from knockout.cli.signals import say as say_directly

LEFT = "knockout: left at once; the next command sets right what was cut off, and the same one goes on from here"
INSISTING = (signal.SIGINT, signal.SIGTERM)
"""Those which, sent again, cut an ending short. A terminal that is closed may send its own more than once."""
NOTE_SECONDS = 2.0
"""So long leaving at once waits for the note that the user wants it."""


class stopping:
    """While entered, the first signal ends the work as Ctrl-C does: runs stop after their step, with a checkpoint.

    It raises KeyboardInterrupt, unless a library is just being imported, which might lose it. `say` is told in a line that
    the command is stopping, and `call` what else to do then, in threads of their own. Ctrl-C or SIGTERM once more leaves at
    once, also while this thread is held up somewhere: then the kernel ends what the command started, as if it was killed.
    """

    def __init__(self, *, say: Callable[[str], None] | None = None) -> None:
        self.say = say or say_directly
        self.called: Callable[[], None] | None = None
        self.first: int | None = None
        self.raised = False
        self.noting: threading.Thread | None = None

    def __enter__(self) -> stopping:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        self.woken_before = signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)
        self.before = {number: signal.signal(number, self._stop) for number in heeded()}
        threading.Thread(target=self._watch, name="signals", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """What has begun to end goes on ending, and can be cut short, until the process is over."""
        if self.first is None:
            signal.set_wakeup_fd(self.woken_before)
            for number, handler in self.before.items():
                signal.signal(number, handler)
            os.close(self.writer)
        elif kind is None and not self.raised:
            self.raised = True
            raise KeyboardInterrupt

    def call(self, work: Callable[[], None]) -> None:
        """What the first signal, which may have come by now, is to do beside the exception."""
        self.called = work
        if self.first is not None:
            work()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.first is None:
            self.first = number
        if number == signal.SIGHUP:
            forget_terminal()
        if not self.raised and not imports(frame):
            self.raised = True
            raise KeyboardInterrupt

    def _watch(self) -> None:
        """Hear the signals as the kernel delivers them, whatever the main thread does."""
        began = 0.0
        for number in self._numbers():
            if not began:
                began, self.first = time.monotonic(), number
                if number == signal.SIGHUP:
                    forget_terminal()
                threading.Thread(target=self._tell, args=(number,), daemon=True).start()
                self.noting = threading.Thread(target=self.called or _nothing, daemon=True)
                self.noting.start()
            elif number in INSISTING and time.monotonic() - began > SAME_SECONDS:
                if self.noting is not None:
                    self.noting.join(NOTE_SECONDS)
                leave_at_once(INTERRUPTED, said=LEFT)

    def _numbers(self) -> Iterator[int]:
        """Those of the signals that end a command, until this is left without any."""
        while received := os.read(self.reader, 64):
            yield from (number for number in received if number in self.before)
        os.close(self.reader)

    def _tell(self, number: int) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads it, or it is closed
            self.say(STOPPING[signal.Signals(number)])


def _nothing() -> None:
    """Nobody asked for more."""
