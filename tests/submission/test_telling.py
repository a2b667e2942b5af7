"""Hooks: a command that reads JSON, an address that takes it, and what is said when they do not."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from pydantic import HttpUrl

from knockout.declare.schedules import PostJson, RunCommand, TellNobody
from knockout.errors import ServiceError
from knockout.services.processes import identify
from knockout.submission.telling import tell

DATA = {"title": "$(touch never)", "flipped": True}


class Taking(BaseHTTPRequestHandler):
    """Keeps what is posted; refuses what goes to /refuses."""

    taken: list[tuple[str, str | None, object]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.taken.append((self.path, self.headers["Content-Type"], body))
        self.send_response(500 if self.path == "/refuses" else 204)
        self.end_headers()

    def log_message(self, format: str, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    Taking.taken = []
    with HTTPServer(("127.0.0.1", 0), Taking) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_command_reads_json_and_no_shell_reads_its_words(tmp_path):
    kept = tmp_path / "kept $(touch never).json"
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    tell(RunCommand(kind="command", run=[sys.executable, "-c", code, str(kept)]), data=DATA)
    assert json.loads(kept.read_text()) == DATA
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]
    tell(TellNobody(), data=DATA)


def test_an_address_takes_json(address):
    tell(PostJson(kind="webhook", url=HttpUrl(f"{address}/hook")), data=DATA)
    assert Taking.taken == [("/hook", "application/json", DATA)]


def test_a_hook_that_fails_is_told(address):
    with pytest.raises(ServiceError, match="ended with exit code 3"):
        tell(RunCommand(kind="command", run=[sys.executable, "-c", "raise SystemExit(3)"]), data=DATA)
    with pytest.raises(ServiceError, match="no-such-program could not be run: "):
        tell(RunCommand(kind="command", run=["/no-such-program"]), data=DATA)
    with pytest.raises(ServiceError, match="/refuses did not take what changed: HTTP Error 500"):
        tell(PostJson(kind="webhook", url=HttpUrl(f"{address}/refuses")), data=DATA)


def test_a_hook_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    kept = tmp_path / "child"
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "open(sys.argv[1], 'w').write(str(child.pid))\n"
        "child.wait()"
    )
    with pytest.raises(ServiceError, match="had not ended after 2 s, and was killed"):
        tell(RunCommand(kind="command", run=[sys.executable, "-c", code, str(kept)]), data=DATA, seconds=2.0)
    assert kept.exists()
    deadline = time.monotonic() + 10.0
    while identify(int(kept.read_text())) is not None:
        assert time.monotonic() < deadline, "what the hook started goes on"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"", "had not answered after 1 s"),
        (b"HTTP/1.1 200 OK\r\nX-Slow: yes\r\n", "had not answered after 1 s"),
        (b"220 mail ESMTP\r\n", "did not take what changed: 220 mail ESMTP"),
        (b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", "did not take what changed: HTTP Error 302"),
    ],
)  # fmt: skip
def test_an_address_that_says_nothing_something_else_or_goes_elsewhere_is_told_in_time(
    said: bytes, told: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def answer() -> None:
            one, _ = server.accept()
            held.append(one)  # open until the test ends
            one.recv(65_536)
            one.sendall(said)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        url = HttpUrl(f"http://127.0.0.1:{server.getsockname()[1]}/hook")
        with pytest.raises(ServiceError, match=told):
            tell(PostJson(kind="webhook", url=url), data=DATA, seconds=1.0)
        thread.join()
        for one in held:
            one.close()
