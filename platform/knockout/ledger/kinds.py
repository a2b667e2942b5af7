"""What stands at a path: a file, a folder, or something that is neither.

The invariant: a link is one whatever it points to, and is followed nowhere.
"""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from typing import Literal

Kind = Literal["file", "folder"]


def found(path: Path) -> str | None:
    """`file`, `folder`, `link`, or `device` for what is none of them; None where nothing stands."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(mode):
        return "link"
    if stat.S_ISDIR(mode):
        return "folder"
    return "file" if stat.S_ISREG(mode) else "device"


def is_file(path: Path) -> bool:
    """Whether a file stands there, and no link to one."""
    return found(path) == "file"


def is_folder(path: Path) -> bool:
    """Whether a folder stands there, and no link to one."""
    return found(path) == "folder"


def misfit(path: Path, *, wanted: Kind) -> str | None:
    """`a link stands where a file belongs`; None where nothing stands, or what is wanted."""
    kind = found(path)
    return f"a {kind} stands where a {wanted} belongs" if kind not in (None, wanted) else None


def files(folder: Path, *, pattern: str) -> list[Path]:
    """The files of a folder whose names match, in order of their names; none where it is a link."""
    return sorted(path for path in folder.glob(pattern) if is_file(path)) if is_folder(folder) else []


def remove(path: Path) -> None:
    """Delete what stands at a path, a folder with all in it, of a link only the link; nothing where nothing stands."""
    if is_folder(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
