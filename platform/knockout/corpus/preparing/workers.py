"""Who does the tasks of a preparation: this process, or several on this machine's cores.

The invariant: a task is a function of a module and one plain argument, and its result is small: what it makes lies in files.
So the same tasks run here, in other processes, or on other machines that see the same folder, and a task that was done is
found again.

A worker is an interpreter of its own that reads tasks from its standard input. It ends when the input does, so that nothing
is left when its owner is killed; what it was doing then is written whole or not at all.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Protocol, TypeVar

from knockout.errors import KnockoutError, WorkspaceError

Worker = subprocess.Popen[bytes]
Selector = selectors.BaseSelector
Task = TypeVar("Task")
Result = TypeVar("Result")


class Workers(Protocol):
    """Does tasks."""

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """The results in the order of the tasks; the first error of a task is raised in its place."""
        ...

    def close(self) -> None:
        """End what was started; tasks in work are given up."""
        ...


class Here:
    """Does tasks one after the other in this process."""

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """The results in the order of the tasks."""
        return map(function, tasks)

    def close(self) -> None:
        """Nothing was started."""


class Processes:
    """Does tasks in several processes with one thread each; they start when the first tasks come."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._started: list[Worker] = []

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """The results in the order of the tasks; after an error no more of them are begun.

        Raises:
            WorkspaceError: a worker was killed.
        """
        while len(self._started) < min(self.count, len(tasks)):
            self._started.append(_start())
        waiting = deque(enumerate(tasks))
        answers: dict[int, tuple[bool, Any]] = {}
        with selectors.DefaultSelector() as busy:
            for worker in self._started:
                _give(worker, function, waiting, busy=busy)
            for number in range(len(tasks)):
                while number not in answers:
                    for key, _ in busy.select():
                        worker, given = key.data
                        busy.unregister(key.fileobj)
                        answers[given] = _answer_of(worker)
                        if answers[given][0]:
                            _give(worker, function, waiting, busy=busy)
                done, result = answers.pop(number)
                if not done:
                    raise result
                yield result

    def close(self) -> None:
        """Kill the workers."""
        for worker in self._started:
            worker.kill()
        for worker in self._started:
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                assert pipe is not None
                _close(pipe)
        self._started = []


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start() -> Worker:
    one_thread = {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-m", "knockout.corpus.preparing.workers"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **one_thread})


def _give(worker: Worker, function: Callable[[Any], Any], waiting: deque[tuple[int, Any]], *, busy: Selector) -> None:
    """Give a worker that is free the next task, if there is one."""
    if not waiting:
        return
    number, task = waiting.popleft()
    assert worker.stdin is not None
    assert worker.stdout is not None
    with _alive(worker):
        pickle.dump((function, task), worker.stdin)
        worker.stdin.flush()
    busy.register(worker.stdout, selectors.EVENT_READ, (worker, number))


def _answer_of(worker: Worker) -> tuple[bool, Any]:
    assert worker.stdout is not None
    with _alive(worker):
        return pickle.load(worker.stdout)


@contextmanager
def _alive(worker: Worker) -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError, pickle.UnpicklingError):
        code = worker.wait()
        how = f"was ended by signal {-code}, for lack of memory perhaps" if code < 0 else f"ended with exit code {code}"
        raise WorkspaceError(f"a process that prepared the corpus {how}; prepare it again: what was done is kept") from None


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except BrokenPipeError:
        return  # what was not sent when the worker was killed


def _serve() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner hears it too, and decides
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            function, task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            pickle.dump(_answer(function, task), answers)
            answers.flush()
        except BrokenPipeError:
            return  # the owner was killed meanwhile


def _answer(function: Callable[[Any], Any], task: Any) -> tuple[bool, Any]:
    try:
        return True, function(task)
    except KnockoutError as error:
        return False, error
    except Exception as error:
        error.add_note(traceback.format_exc())
        return False, error


if __name__ == "__main__":
    _serve()
