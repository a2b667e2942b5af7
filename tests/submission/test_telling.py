"""Hooks: a command that reads JSON, an address that takes it, and what is said when they do not."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from pydantic import HttpUrl

from knockout.declare.schedules import PostJson, RunCommand, TellNobody
from knockout.errors import ServiceError
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
    with pytest.raises(ServiceError, match="no-such-program could not be run to its end"):
        tell(RunCommand(kind="command", run=["/no-such-program"]), data=DATA)
    with pytest.raises(ServiceError, match="/refuses did not take what changed: HTTP Error 500"):
        tell(PostJson(kind="webhook", url=HttpUrl(f"{address}/refuses")), data=DATA)
