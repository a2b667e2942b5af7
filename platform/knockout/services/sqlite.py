"""SQLite files of the workspace: whether one is damaged, and what an error of SQLite's says of its file.

The invariant: looking changes nothing but what SQLite sets right when a file is opened, and an error that a statement
brought on itself is not blamed on the file.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from knockout.errors import WorkspaceError

BUSY_TIMEOUT_SECONDS = 60.0
FOLDER = "it is a folder, not a file"
TROUBLES = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}
"""Result codes that tell of the disk, of rights, or of another process, and not of the file's content."""
DAMAGES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
"""Result codes that tell of content that is no database."""
_BESIDE = ("", "-journal", "-wal", "-shm")


def damage(path: Path) -> str | None:
    """Why what lies at a path is no sound database, or None.

    Raises:
        WorkspaceError: it cannot be looked at: it is locked, or may not be read.
    """
    if path.is_dir():
        return FOLDER
    uri = f"{path.absolute().as_uri()}?mode=rw"  # what a killed writer left is rolled back, as by whoever opens it
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
            (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        if is_damage(error):
            return str(error)
        raise WorkspaceError(f"{path} cannot be read: {error}") from None
    return None if said == "ok" else str(said)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error tells of content that is no database."""
    return _code(error) in DAMAGES


def may_be_full(error: sqlite3.Error) -> bool:
    """Whether an error tells of a disk without room; for the log's index SQLite calls that an input or output error."""
    return _code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def is_locked(error: sqlite3.Error) -> bool:
    """Whether an error tells that another connection has the file."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def trouble(error: BaseException, *, path: Path, remedy: str) -> WorkspaceError | None:
    """What an error, or the one that it comes from, says of a file; None where it says nothing of one.

    `remedy` is what mends a damaged file.
    """
    found = _cause(error)
    if found is None:
        return None
    if is_damage(found) or path.is_dir():
        return WorkspaceError(f"{path} is damaged ({FOLDER if path.is_dir() else found}): {remedy}")
    if _code(found) in TROUBLES:
        return WorkspaceError(f"{path} cannot be read or written: {found}")
    return None


def parts(path: Path) -> list[Path]:
    """A file and what SQLite keeps beside it, as far as they are there."""
    return [part for suffix in _BESIDE if (part := path.with_name(path.name + suffix)).exists()]


def _cause(error: BaseException | None) -> sqlite3.Error | None:
    while error is not None and not isinstance(error, sqlite3.Error):
        error = error.__cause__ or error.__context__
    return error


def _code(error: sqlite3.Error) -> int | None:
    """The primary result code; errors of Python's own have none."""
    code = vars(error).get("sqlite_errorcode")
    return None if code is None else code & 0xFF
