"""Reading a declared source, and servers on this machine that hold files: a web server, an S3 store and a hub."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from pydantic import TypeAdapter

from knockout.corpus.files.outcomes import Skipped
from knockout.corpus.preparing.chunks import CHUNK_BYTES, chunks_of, read_chunk
from knockout.declare.corpus import Source
from knockout.errors import CorpusError

Read = Callable[..., list[bytes | str]]
Refusal = Callable[..., str]


def declared(plain: dict[str, object]) -> Source:
    return TypeAdapter(Source).validate_json(json.dumps({"kind": "files"} | plain))


def read_all(plain: dict[str, object], *, base: Path = Path("/"), chunk_bytes: int = CHUNK_BYTES) -> list[bytes | str]:
    """Documents in order, and the reasons of those that were skipped."""
    source = declared(plain)
    chunks = chunks_of(source, base=base, chunk_bytes=chunk_bytes)
    found = [document for chunk in chunks for document in read_chunk(source, chunk, base=base)]
    return [document.reason if isinstance(document, Skipped) else document for document in found]


@pytest.fixture(scope="session")
def source() -> Callable[[dict[str, object]], Source]:
    return declared


@pytest.fixture(scope="session")
def read() -> Read:
    return read_all


@pytest.fixture(scope="session")
def refusal() -> Refusal:
    def refused(plain: dict[str, object], **settings: object) -> str:
        with pytest.raises(CorpusError) as caught:
            read_all(plain, **settings)  # pyright: ignore[reportArgumentType]
        return str(caught.value)

    return refused


@dataclass
class Web:
    """A web server's files by path, and what was asked of it."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    gives_ranges: bool = True
    asked: list[str] = field(default_factory=list)

    def put(self, path: str, content: bytes) -> str:
        self.files[path] = content
        return f"{self.url}/{path}"


class _Handler(BaseHTTPRequestHandler):
    web: Web
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).lstrip("/")
        self.web.asked.append(f"{self.command} {self.path} {self.headers.get('Range', '')}".strip())
        if path.startswith("api/datasets/"):
            self.hub(path.removeprefix("api/datasets/"))
        elif path in self.web.files:
            self.file(self.web.files[path])
        else:
            self.answer(404, b"not found")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        paths = parse_qs(body)["paths"]
        path = unquote(urlsplit(self.path).path).removeprefix("/api/datasets/")
        repository = path.split("/paths-info/")[0]
        self.answer_json([entry for entry in self.tree(repository) if entry["path"] in paths])

    def file(self, content: bytes) -> None:
        asked = self.headers.get("Range")
        if asked is None or not self.web.gives_ranges:
            self.answer(200, content)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last) if last else len(content) - 1, len(content) - 1)
        if start >= len(content):
            self.answer(416, b"")
        else:
            self.answer(206, content[start : end + 1], {"Content-Range": f"bytes {start}-{end}/{len(content)}"})

    def hub(self, path: str) -> None:
        repository, _, rest = path.partition("/tree/") if "/tree/" in path else path.partition("/revision/")
        if not any(name.startswith(f"datasets/{repository}/") for name in self.web.files):
            self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif "/tree/" in path:
            inside = rest.partition("/")[2]
            below = [
                entry for entry in self.tree(repository) if str(entry["path"]).startswith(f"{inside}/" if inside else "")
            ]
            deep = "recursive=true" in self.path.lower()
            depth = inside.count("/") + 1 if inside else 0
            self.answer_json([entry for entry in below if deep or str(entry["path"]).count("/") == depth])
        else:
            self.answer_json({"id": repository, "sha": "0" * 40, "private": False, "tags": [], "downloads": 0, "likes": 0})

    def tree(self, repository: str) -> list[dict[str, object]]:
        """Files, with their hashes as the hub gives them, and the folders around them."""
        prefix = f"datasets/{repository}/resolve/main/"
        entries: dict[str, dict[str, object]] = {}
        for name, content in self.web.files.items():
            if name.startswith(prefix):
                path = name.removeprefix(prefix)
                for parent in list(Path(path).parents)[:-1]:
                    entries[str(parent)] = {"type": "directory", "path": str(parent), "oid": "0" * 40, "size": 0}
                lfs = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
                known = {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                entries[path] = known | ({"lfs": lfs} if path.endswith(".parquet") else {})
        return list(entries.values())

    def answer_json(self, plain: object) -> None:
        self.answer(200, json.dumps(plain).encode(), {"Content-Type": "application/json"})

    def answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        ranges = {"Accept-Ranges": "bytes"} if self.web.gives_ranges else {}
        for name, value in {"Content-Length": str(len(content)), **ranges, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@pytest.fixture
def web() -> Iterator[Web]:
    """A web server on a free port; with the paths of the hub it stands in for that too."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.web = Web(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield handler.web
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an S3 store: moto's server, a process of its own on a free port."""
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("wb") as file:
        command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
    try:
        yield _address(log, process)
    finally:
        process.terminate()
        process.wait()


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        found = [word for word in log.read_text().split() if word.startswith("http://127.0.0.1:")]
        if found:
            with urllib.request.urlopen(f"{found[0]}/moto-api/"):
                return found[0]
        time.sleep(0.05)
    raise RuntimeError(f"moto did not start: {log.read_text()}")
