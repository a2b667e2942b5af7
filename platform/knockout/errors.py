"""The exception tree.

    KnockoutError
    ├── InputError                the user's input is wrong: one message, exit code 2, no traceback
    │   ├── DeclarationError      a YAML file says something impossible; carries every Problem found
    │   ├── CorpusError           text that is missing, empty, undecodable or changed
    │   └── WorkspaceError        a workspace that cannot be read, written or is full
    ├── ServiceError              a local server that did not start, or whose port is taken
    └── RunError                  a training run that ended without a sealed result
        ├── RunEnded              the same, with the run's state and reason
        └── Stopped               a submission that was asked to stop, and did

Anything else that escapes is a fault of the program and shows its traceback.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, marks that break lines or reverse the direction of writing, and halves of surrogate pairs."""
BREAKING = re.compile("[\t\n]")
"""What else a name or a key cannot hold, that stands within a line."""
LONG = re.compile(r"[^\s/.:,;'\"`]{81,}")
"""A word, a key or a file's name that is no longer for reading."""
KEPT_CHARACTERS = 60


def readable(text: str) -> str:
    """A text for people, whatever it quotes of a file or an argument: nothing in it reaches a terminal as a command, and a
    word of more than 80 characters is shortened.
    """
    escaped = UNPRINTABLE.sub(_escaped, text)
    return LONG.sub(lambda found: f"{found[0][:KEPT_CHARACTERS]}…", escaped)


def in_line(text: str) -> str:
    """The same for a text that is part of a line."""
    return BREAKING.sub(_escaped, readable(text))


def quoted(text: str) -> str:
    """A name for a message, as it was given, in quotes."""
    return f"'{in_line(text)}'"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


class KnockoutError(Exception):
    """Every error that knockout raises on purpose. Its text is for reading, whatever it quotes."""

    def __str__(self) -> str:
        return readable(super().__str__())


class InputError(KnockoutError):
    """The user's input is wrong; the message says what, where, and what would be right."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in one file: where it stands, what was found, what would be right."""

    file: str
    line: int
    column: int
    path: str
    message: str

    @property
    def place(self) -> tuple[str, int, int, str]:
        """Where it stands: file, line, column, path."""
        return self.file, self.line, self.column, self.path

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return in_line(f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}")


class DeclarationError(InputError):
    """A declaration is wrong. Carries all problems of the file, not only the first."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


class CorpusError(InputError):
    """Text that is missing, empty, undecodable, or no longer what its manifest says."""


class WorkspaceError(InputError):
    """A workspace folder that cannot be created, read or written."""


class ServiceError(KnockoutError):
    """A local server did not become healthy, or its port belongs to something else."""


class RunError(KnockoutError):
    """A training run ended without a sealed result."""


class RunEnded(RunError):
    """A run has no result; carries what the ledger, or the submission's end, says of it."""

    def __init__(self, name: str, *, state: str, reason: str | None) -> None:
        self.state = state
        self.reason = reason
        super().__init__(f"{name}: {state}: {reason}")


class Stopped(RunError):
    """A submission was asked to stop before it was done; the message says by what."""
