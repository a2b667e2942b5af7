"""Files by their address: a path on this machine, or a URL that fsspec reads.

The invariant: a fingerprint changes whenever a byte does. It is a hash of the bytes, or of what a store says of them where
that is one (the ETag of S3, Google's MD5, the hub's SHA-256); never of a name or a time.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast

from knockout.errors import CorpusError

EXTRAS = {"s3": "s3", "gs": "gs", "hf": "hf", "http": "http", "https": "http"}
"""For each scheme the extra of this package that reads it."""
CLIENTS = {
    *("aiobotocore", "aiohttp", "botocore", "fsspec", "gcsfs", "google", "httpcore", "httpx", "httpx2", "huggingface_hub"),
    *("requests", "s3fs", "urllib3"),
}
"""Packages whose own errors say that a store could not be read."""
BLOCK_BYTES = 2**20


def scheme_of(address: str) -> str | None:
    """The scheme of a URL; None for a path."""
    scheme, found, _ = address.partition("://")
    return scheme if found else None


@contextmanager
def reading(address: str) -> Iterator[None]:
    """Tell what a file system or a store refuses as a CorpusError that names the address."""
    try:
        yield
    except OSError as error:
        raise CorpusError(f"{address}: cannot be read ({error.strerror or error or type(error).__name__})") from None
    except Exception as error:
        if type(error).__module__.split(".")[0] not in CLIENTS:
            raise
        raise CorpusError(f"{address}: cannot be read ({type(error).__name__}: {error})") from None


def file_system(address: str) -> Any:
    """The fsspec file system of a URL.

    Raises:
        CorpusError: what reads such addresses is not installed.
    """
    import fsspec  # 0.1 s, for remote files only

    scheme = scheme_of(address)
    assert scheme is not None
    try:
        return fsspec.filesystem(scheme, use_listings_cache=False)
    except ImportError as error:
        wanted = f"pip install 'knockout[{EXTRAS[scheme]}]'"
        raise CorpusError(f"{address}: {scheme}:// needs a package that is not installed ({error}): {wanted}") from None


@dataclass(frozen=True)
class Stored:
    """What is known of a file before it is read."""

    address: str
    size: int
    """Bytes; 0 where a web server does not say."""
    is_sliceable: bool
    """Whether any range of it can be read; a web server may say no."""
    content: str | None
    """What its store says of its content, where that changes with each byte."""


def stored(address: str) -> Stored:
    """Ask the file system or the store about a file.

    Raises:
        CorpusError: it is not there, or may not be read.
    """
    with reading(address):
        scheme = scheme_of(address)
        if scheme is None:
            return Stored(address, os.stat(address).st_size, True, None)
        files = file_system(address)
        files.invalidate_cache()
        info = files.info(address)
    size = int(info["size"] or 0)
    is_sliceable = scheme not in ("http", "https") or _gives_ranges(address, size)
    return Stored(address, size, is_sliceable, _content(info, scheme=scheme))


@lru_cache(maxsize=4096)
def _gives_ranges(address: str, size: int) -> bool:
    """Whether a web server sends a part of a file when asked for one; few say so beforehand."""
    if size < 2:
        return False
    with reading(address), file_system(address).open(address, "rb", block_size=2**10, cache_type="none") as file:
        file.seek(size - 1)
        try:
            return len(file.read(1)) == 1
        except ValueError:
            return False


def _content(info: Mapping[str, Any], *, scheme: str) -> str | None:
    match scheme:
        case "s3":
            said = info.get("ETag")
        case "gs":
            said = info.get("md5Hash")
        case "hf":
            lfs = info.get("lfs")
            said = lfs["sha256"] if lfs else info.get("blob_id")
        case _:
            said = None
    return None if said is None else f"{said}:{info['size']}"


def open_file(file: Stored) -> BinaryIO:
    """A file to read from its start; it can be sought where it is sliceable."""
    with reading(file.address):
        if scheme_of(file.address) is None:
            return Path(file.address).open("rb")
        if file.is_sliceable:
            return cast(BinaryIO, file_system(file.address).open(file.address, "rb"))
        stream = file_system(file.address).open(file.address, "rb", block_size=0)
        return cast(BinaryIO, io.BufferedReader(_Forward(stream), BLOCK_BYTES))


def open_slice(file: Stored, *, first: int, last: int) -> BinaryIO:
    """The bytes from `first` to before `last` of a file, as a file; a remote one's are fetched at once."""
    if not file.is_sliceable:
        return open_file(file)
    with reading(file.address):
        if scheme_of(file.address) is not None:
            return io.BytesIO(file_system(file.address).cat_file(file.address, start=first, end=last))
        return cast(BinaryIO, io.BufferedReader(_Slice(file.address, first=first, last=last), BLOCK_BYTES))


def first_bytes(file: Stored, *, count: int) -> bytes:
    """The first bytes of a file."""
    with reading(file.address), open_slice(file, first=0, last=count) as opened:
        return opened.read(count)


def fingerprint(file: Stored, *, first: int = 0, last: int | None = None) -> str:
    """SHA-256, in hex, of a file's bytes from `first` to before `last`, or of what its store says of all its content."""
    if file.content is not None:
        return hashlib.sha256(file.content.encode()).hexdigest()
    opened = open_file(file) if last is None else open_slice(file, first=first, last=last)
    return _sha256(opened, address=file.address)


def known_fingerprint(file: Stored) -> str:
    """The same of a whole file; a local one is read once in a process while the file system says that nobody wrote it."""
    return fingerprint(file) if scheme_of(file.address) is not None else _whole(file, _signature(file.address))


def is_checkable(file: Stored) -> bool:
    """Whether a fingerprint can be had without fetching the file again."""
    return file.content is not None or scheme_of(file.address) is None


def _sha256(opened: BinaryIO, *, address: str) -> str:
    digest = hashlib.sha256()
    with reading(address), opened:
        while block := opened.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


@lru_cache(maxsize=4096)
def _whole(file: Stored, signature: tuple[int, ...]) -> str:
    return fingerprint(file)


def _signature(address: str) -> tuple[int, ...]:
    with reading(address):
        status = os.stat(address)
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class _Forward(io.RawIOBase):
    """A file of fsspec that can only be read on: its own lines would be found by going back."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._file.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Slice(io.RawIOBase):
    """The bytes from `first` to before `last` of a local file."""

    def __init__(self, path: str, *, first: int, last: int) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed by close)
        self._file.seek(first)
        self._left = last - first

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._file.read(min(len(buffer), self._left))
        self._left -= len(block)
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._file.close()
        super().close()
