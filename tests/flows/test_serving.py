"""A worker whose Prefect server is out of reach: it ends when it is told to, and its log stays short."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from knockout import project
from knockout.services.catalog import worker
from knockout.services.processes import free_port

START_SECONDS = 90.0
ASK = """if True:
    import logging, sys
    sys.path.insert(0, sys.argv[1])
    from datetime import UTC, datetime, timedelta
    from workers import working
    from workers.warming import Warm

    lines = []
    one = working.PatientWorker("pool", warm=Warm(), name="one")
    one._logger = logging.getLogger("one")
    one._logger.addFilter(lines.append)
    assert one.is_worker_still_polling(2.0)
    one._last_polled_time = datetime.now(UTC) - timedelta(seconds=61)  # thirty times two seconds are allowed
    assert not any(one.is_worker_still_polling(2.0) for _ in range(50))
    one.told -= 59
    assert not one.is_worker_still_polling(2.0)
    print(len(lines))
    one.told -= 61
    assert not one.is_worker_still_polling(2.0)
    print(len(lines))
"""


def test_a_worker_without_its_server_ends_when_it_is_told_to(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with socket.socket() as silent, log.open("wb") as said:
        silent.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else will
        server = worker(pool="nobody", slots=1, prefect=f"http://127.0.0.1:{silent.getsockname()[1]}")
        port = free_port()
        environment = {**server.environment(tmp_path, port, False), "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(server.command(tmp_path, port), env=environment, stdout=said, stderr=said) as process:
            try:
                deadline = time.monotonic() + START_SECONDS
                while log.read_text().count("Falling back to polling") < 2 and time.monotonic() < deadline:
                    assert process.poll() is None, log.read_text()
                    time.sleep(0.1)
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=20) == 0, log.read_text()
            finally:
                process.kill()
    assert "KeyboardInterrupt" not in log.read_text()


def test_that_it_asks_for_no_work_is_logged_once_a_minute_however_often_its_health_is_asked_for() -> None:
    command = [sys.executable, "-c", ASK, str(project.root() / "flows")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert said.stdout.split() == ["1", "2"], said.stderr
