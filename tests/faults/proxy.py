"""A network between the product and a server that loses connections, delays, repeats and refuses requests.

To every fourth request something happens; what, and to which one first, is drawn from `random.Random(seed)`. A websocket is
passed on byte by byte.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = ("drop before", "drop after", "repeat", "delay", "refuse")
DELAY_SECONDS = 0.5


@dataclass
class Weather:
    """What the network does to requests now."""

    seed: int
    every: int | None = None
    """Something happens to one in so many requests; None: to none."""
    refusing: bool = False
    """Whether every request is answered with 503."""
    seen: Counter[str] = field(default_factory=Counter)
    """How often each fault came."""

    def __post_init__(self) -> None:
        draw = random.Random(self.seed)
        self.order = draw.sample(FAULTS, len(FAULTS))
        self.count = draw.randrange(self.every or 1)
        self.lock = threading.Lock()

    def next(self) -> str:
        with self.lock:
            self.count += 1
            bad = self.every is not None and self.count % self.every == 0
            turn = self.count // (self.every or 1) % len(FAULTS)
            fault = "refuse" if self.refusing else self.order[turn] if bad else "pass"
            self.seen[fault] += 1
            return fault


@contextlib.contextmanager
def proxied(port: int, *, weather: Weather) -> Iterator[int]:
    """The port of a proxy before a server's port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):  # either side is gone
                super().handle_one_request()
                return
            self.close_connection = True

        def _any(self) -> None:
            if "upgrade" in self.headers.get("Connection", "").lower():
                self._tunnel()
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = weather.next()
            if fault == "delay":
                time.sleep(DELAY_SECONDS)
            if fault == "refuse":
                self._answer(503, [], b"the server is busy")
                return
            if fault == "drop before":
                self.close_connection = True
                return
            for _ in range(2 if fault == "repeat" else 1):
                status, headers, said = self._forward(body)
            if fault == "drop after":
                self.close_connection = True
                return
            self._answer(status, headers, said)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = do_HEAD = _any

        def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            connection.request(self.command, self.path, body=body, headers=headers)
            response = connection.getresponse()
            said = response.read()
            connection.close()
            return response.status, response.getheaders(), said

        def _answer(self, status: int, headers: list[tuple[str, str]], said: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(said)

        def _tunnel(self) -> None:
            """Pass the head on, then bytes both ways until one side ends."""
            with socket.create_connection(("127.0.0.1", port)) as server:
                head = f"{self.requestline}\r\n{self.headers}".encode("latin-1")
                server.sendall(head)
                ends = {self.connection: server, server: self.connection}
                while ends:
                    for source in select.select(list(ends), [], [], 60)[0]:
                        chunk = source.recv(65536)
                        if not chunk:
                            self.close_connection = True
                            return
                        ends[source].sendall(chunk)

        def log_message(self, format: str, *_: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
