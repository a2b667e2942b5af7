"""Nothing started under the guard outlives its owner, whatever either side does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from knockout.services import guard as guard_script

GUARD = [sys.executable, "-I", "-S", str(guard_script.__file__)]

STUBBORN = textwrap.dedent(
    """
    import os, signal, sys, time
    from pathlib import Path

    folder = Path(sys.argv[1])

    def stay(name):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        (folder / f"{name}.tmp").write_text(str(os.getpid()))
        (folder / f"{name}.tmp").rename(folder / name)
        while True:
            time.sleep(60)

    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            stay("orphan")    # in a session of its own, its parent gone, deaf to SIGTERM
        os._exit(0)
    if os.fork() == 0:
        stay("grandchild")
    stay("child")
    """
)
NAMES = ("child", "grandchild", "orphan")

OWNER = textwrap.dedent(
    """
    import subprocess, sys, time
    guard = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
    print(guard.pid, flush=True)
    time.sleep(600)
    """
)


def until(condition: Callable[[], bool], *, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def family(folder: Path) -> dict[str, int]:
    assert until(lambda: all((folder / name).exists() for name in NAMES)), "the processes did not start"
    return {name: int((folder / name).read_text()) for name in NAMES}


def left_of(pids: dict[str, int]) -> list[str]:
    until(lambda: not any(runs(pid) for pid in pids.values()))
    return [name for name, pid in pids.items() if runs(pid)]


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[list[str]]:
    """A command whose three processes ignore SIGTERM; killed at the end whatever the test found."""
    yield [sys.executable, "-S", "-c", STUBBORN, str(tmp_path)]
    for name in NAMES:
        if (tmp_path / name).exists() and runs(pid := int((tmp_path / name).read_text())):
            os.kill(pid, signal.SIGKILL)


def test_everything_ends_when_the_owner_is_killed_with_9(tmp_path: Path, stubborn: list[str]) -> None:
    command = [*GUARD, "--grace", "0.3", "--", *stubborn]
    with subprocess.Popen([sys.executable, "-c", OWNER, *command], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        guard = int(owner.stdout.readline())
        pids = family(tmp_path)
        owner.kill()
    assert left_of({**pids, "guard": guard}) == []


def test_a_child_that_holds_the_owners_pipe_open_does_not_keep_it_alive(tmp_path: Path, stubborn: list[str]) -> None:
    forking = OWNER.replace("print(", "import os\nif os.fork() == 0:\n    time.sleep(600)\nprint(")
    command = [*GUARD, "--grace", "0.3", "--", *stubborn]
    with subprocess.Popen(
        [sys.executable, "-c", forking, *command], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as owner:
        assert owner.stdout is not None
        guard = int(owner.stdout.readline())
        pids = family(tmp_path)
        owner.kill()
        owner.wait()
        left = left_of({**pids, "guard": guard})
        os.killpg(owner.pid, signal.SIGKILL)
    assert left == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_everything_ends_when_the_guard_is_asked_to(tmp_path: Path, stubborn: list[str], number: signal.Signals) -> None:
    with subprocess.Popen([*GUARD, "--grace", "0.2", "--", *stubborn], stdin=subprocess.PIPE) as guard:
        pids = family(tmp_path)
        guard.send_signal(number)
        assert guard.wait(10) == 128 + number
    assert left_of(pids) == []


def test_everything_ends_when_the_pipe_is_closed(tmp_path: Path, stubborn: list[str]) -> None:
    with subprocess.Popen([*GUARD, "--grace", "0.2", "--", *stubborn], stdin=subprocess.PIPE) as guard:
        assert guard.stdin is not None
        pids = family(tmp_path)
        guard.stdin.write(b"words do not matter")
        guard.stdin.close()
        guard.wait(10)
    assert left_of(pids) == []


def test_what_a_command_left_behind_ends_with_it(tmp_path: Path, stubborn: list[str]) -> None:
    script = '"$@" & cd "$0"; until [ -e child ] && [ -e grandchild ] && [ -e orphan ]; do sleep 0.01; done; exit 7'
    with subprocess.Popen(
        [*GUARD, "--grace", "0.2", "--", "sh", "-c", script, str(tmp_path), *stubborn], stdin=subprocess.PIPE
    ) as guard:
        pids = family(tmp_path)
        assert guard.wait(10) == 7
    assert left_of(pids) == []


def test_the_command_dies_with_a_guard_that_is_killed_with_9() -> None:
    script = "trap '' TERM; echo $$; while :; do sleep 60; done"
    with subprocess.Popen(
        [*GUARD, "--", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as guard:
        assert guard.stdout is not None
        child = int(guard.stdout.readline())
        guard.kill()
        guard.wait()
        assert until(lambda: not runs(child))


def test_a_polite_command_is_not_killed_within_the_grace(tmp_path: Path) -> None:
    script = f"trap 'sleep 0.2; echo bye > {tmp_path}/word; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    with subprocess.Popen(
        [*GUARD, "--grace", "20", "--", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as guard:
        assert guard.stdout is not None
        guard.stdout.readline()
        guard.terminate()
        guard.wait(10)
    assert (tmp_path / "word").read_text() == "bye\n"


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["true"], 0, ""),
        (["sh", "-c", "exit 7"], 7, ""),
        (["sh", "-c", "kill -9 $$"], 137, ""),
        (["/no/such/program"], 127, "cannot start '/no/such/program'"),
    ],
)
def test_the_exit_code_is_the_commands(command: list[str], code: int, said: str) -> None:
    with subprocess.Popen([*GUARD, "--", *command], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as guard:
        assert guard.wait(10) == code
        assert guard.stderr is not None
        assert said in guard.stderr.read()


def test_a_detached_guard_outlives_its_starter_and_ends_on_a_signal(tmp_path: Path, stubborn: list[str]) -> None:
    command = [*GUARD, "--grace", "0.2", "--cwd", str(tmp_path), "--detached", "--", *stubborn]
    told = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, timeout=10)
    guard = int(told.stdout)
    pids = family(tmp_path)
    assert runs(guard)
    assert os.getsid(guard) == guard
    assert os.readlink(f"/proc/{pids['child']}/cwd") == str(tmp_path)
    os.kill(guard, signal.SIGTERM)
    assert left_of({**pids, "guard": guard}) == []


@pytest.mark.parametrize("arguments", [[], ["--"], ["--grace"], ["--what", "--", "true"]])
def test_a_wrong_command_line_is_refused(arguments: list[str]) -> None:
    done = subprocess.run([*GUARD, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage: guard.py" in done.stderr
