"""A store of whole folders that machines without a shared disk have in common: S3, or any other that fsspec opens.

Its address is `$KNOCKOUT_STORE` (`s3://bucket/prefix`), or the one line of the file `store` in the workspace; keys and
endpoints come from the store's usual environment.

The invariant: a folder is there once its last file is, which is put last and taken last; so what is read is whole. Nothing
that is put there is changed later.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from knockout.errors import WorkspaceError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

VARIABLE = "KNOCKOUT_STORE"
FILE = "store"
"""In the workspace, for those who would rather not set a variable."""
CREDENTIALS = re.compile(r"(AWS|GOOGLE|GCS|AZURE|FSSPEC)_")
"""Variables from which stores take keys and endpoints."""

Done = TypeVar("Done")


@dataclass(frozen=True)
class ObjectStore:
    """A place in a store, by its address."""

    address: str

    @cached_property
    def _place(self) -> tuple[AbstractFileSystem, str]:
        from fsspec.core import url_to_fs  # its stores take a second to import

        return url_to_fs(self.address)

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        return self._asking(lambda files, root: files.exists(f"{root}/{name}"), what=name)

    def names(self, folder: str) -> list[str]:
        """The files of a folder, by name; none where there is no such folder."""

        def listed(files: AbstractFileSystem, root: str) -> list[str]:
            files.invalidate_cache()
            if not files.exists(f"{root}/{folder}"):
                return []
            return sorted(PurePosixPath(path).name for path in files.ls(f"{root}/{folder}", detail=False))

        return self._asking(listed, what=folder)

    def put(self, paths: Iterable[tuple[Path, str]]) -> None:
        """Copy local files to their names there, in this order; one that vanished meanwhile is passed over."""

        def copied(files: AbstractFileSystem, root: str) -> None:
            for path, name in paths:
                if path.is_file():
                    files.makedirs(str(PurePosixPath(f"{root}/{name}").parent), exist_ok=True)
                    files.put_file(str(path), f"{root}/{name}")

        self._asking(copied, what="what was made here")

    def put_text(self, name: str, *, text: str) -> None:
        """Write a small file there."""

        def written(files: AbstractFileSystem, root: str) -> None:
            files.makedirs(str(PurePosixPath(f"{root}/{name}").parent), exist_ok=True)
            files.pipe_file(f"{root}/{name}", text.encode())

        self._asking(written, what=name)

    def text(self, name: str) -> str | None:
        """What a small file there says; None where there is none."""

        def read(files: AbstractFileSystem, root: str) -> str | None:
            try:
                with files.open(f"{root}/{name}", "r", encoding="utf-8") as file:
                    return str(file.read())
            except FileNotFoundError:
                return None

        return self._asking(read, what=name)

    def take(self, names: Mapping[str, Path]) -> None:
        """Copy files from there to local paths, in this order, each whole or not at all."""

        def copied(files: AbstractFileSystem, root: str) -> None:
            for name, path in names.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryDirectory(dir=path.parent, prefix=".taking-") as room:
                    files.get_file(f"{root}/{name}", str(Path(room) / path.name))
                    os.replace(Path(room) / path.name, path)

        self._asking(copied, what=next(iter(names), "nothing"))

    def take_folder(self, name: str, *, to: Path) -> None:
        """Copy a folder of files from there; it appears here at once, whole."""
        to.parent.mkdir(parents=True, exist_ok=True)
        room = Path(tempfile.mkdtemp(dir=to.parent, prefix=f".taking-{to.name}-"))
        try:
            self.take({f"{name}/{file}": room / file for file in self.names(name)})
            room.chmod(0o755)
            if not to.exists():
                room.rename(to)
        finally:
            shutil.rmtree(room, ignore_errors=True)

    def _asking(self, ask: Callable[[AbstractFileSystem, str], Done], *, what: str) -> Done:
        try:
            return ask(*self._place)
        except Exception as error:
            said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise WorkspaceError(f"the store {self.address} does not take or give {what}: {said}") from error


def find_store(workspace: Path) -> ObjectStore | None:
    """The store of a workspace; None where its files are its own."""
    path = workspace / FILE
    address = os.environ.get(VARIABLE) or (path.read_text().strip() if path.is_file() else "")
    if not address:
        return None
    if "://" not in address:
        where = f"${VARIABLE}" if os.environ.get(VARIABLE) else str(path)
        raise WorkspaceError(f"{where}: '{address}' is not the address of a store: s3://BUCKET/PREFIX, or file:///FOLDER")
    return ObjectStore(address.rstrip("/"))


def kept_credentials(workspace: Path) -> dict[str, str]:
    """What a process that shares results has in its environment to reach the store."""
    if find_store(workspace) is None:
        return {}
    return {name: value for name, value in os.environ.items() if CREDENTIALS.match(name)}
