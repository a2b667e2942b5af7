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

from dataclasses import dataclass


class KnockoutError(Exception):
    """Every error that knockout raises on purpose."""


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

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"


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
