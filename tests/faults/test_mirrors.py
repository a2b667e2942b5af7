"""Servers that are killed, slow, refusing or cut off, and stores that are locked or gone, while a study goes on.

MLflow's mirror writes to the store's database, with or without its server; Prefect is spoken to through its server. So the
faults between the product and Prefect are a network's, and those between it and MLflow a database's.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from agreeing import came_to, invariants, query, records_agree
from commands import Home, kill, opened, until
from proxy import FAULTS, Weather, proxied

from knockout.services import borrowed

SHORT = ("--set", "tokens=6400")


def marked(home: Home, words: str) -> list[int]:
    return [pid for pid, line in home.alive().items() if words in line]


def kill_prefect(home: Home, *, command: int) -> object:
    return [kill(pid) for pid in marked(home, "prefect server start")]


def kill_guard(home: Home, *, command: int) -> object:
    return [kill(pid) for pid in marked(home, "guard.py")]


def kill_command(home: Home, *, command: int) -> object:
    return kill(command)


def leave_at_once(home: Home, *, command: int) -> object:
    kill(command, signal.SIGINT)
    time.sleep(0.7)
    return kill(command, signal.SIGINT)


def test_a_mirrored_study_is_killed_with_its_servers_and_in_the_end_all_agree(home: Home, uninterrupted: Home):
    draw = random.Random(5)
    victims: list[Callable[..., object]] = [kill_command, leave_at_once, kill_prefect, kill_guard]
    for victim in victims:
        process = home.start("run", "resumed")
        target = home.steps() + draw.randrange(20, 80)
        until(lambda target=target, process=process: home.steps() >= target or process.poll() is not None)
        victim(home, command=process.pid)
        code, said = home.finish(process)
        assert code in (0, 130, -signal.SIGKILL), said
        assert "Traceback" not in said
        home.until_gone()
        if code == 0:
            break
    code, said = home.knockout("run", "resumed")
    assert code == 0, said
    invariants(home)
    for folder in (uninterrupted.folder / "runs").iterdir():
        assert came_to(home.folder / "runs" / folder.name) == came_to(folder)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Iterator[tuple[Home, int]]:
    """A workspace, and the port of a Prefect server that stays for the length of the module."""
    for home in opened(tmp_path_factory.mktemp("served") / "home", project=project):
        home.folder.mkdir()
        with borrowed(home.folder, name="prefect") as url:
            yield home, int(url.rpartition(":")[2])


def through(home: Home, *, port: int, arguments: tuple[str, ...]) -> tuple[int, str]:
    """Run a study whose Prefect server is at a port, as one is that `up` started."""
    code = f"""if True:
        from knockout import services
        class Found:
            def wait(self): return "http://127.0.0.1:{port}"
            def stop(self): pass
        services.begin = lambda *given, **named: Found()
        from knockout.cli import main
        main()"""
    return home.knockout("run", "resumed", "--no-mlflow", *arguments, code=code)


def test_a_network_that_drops_delays_repeats_and_refuses_costs_no_run_and_no_state(served: tuple[Home, int]):
    home, port = served
    weather = Weather(1, every=4)
    with proxied(port, weather=weather) as worse:
        code, said = through(home, port=worse, arguments=("--seeds", "2", *SHORT))
    assert code == 0, said
    assert "Traceback" not in said
    assert sum(weather.seen[fault] for fault in FAULTS) >= 4, weather.seen
    print(weather.seen, "going on without" if "Going on without" in said else "")
    code, said = through(home, port=port, arguments=("--seeds", "2", *SHORT))  # it sets right what was missed
    assert code == 0, said
    records_agree(home)


def test_a_server_that_refuses_for_a_while_in_the_middle_costs_no_run_and_no_state(served: tuple[Home, int]):
    home, port = served
    weather = Weather(0)
    with proxied(port, weather=weather) as between:
        ended: list[tuple[int, str]] = []
        arguments = ("--seeds", "4", *SHORT)
        thread = threading.Thread(target=lambda: ended.append(through(home, port=between, arguments=arguments)))
        thread.start()
        before = home.steps()
        until(lambda: home.steps() > before or not thread.is_alive())
        weather.refusing = True
        time.sleep(3)
        weather.refusing = False
        thread.join()
    code, said = ended[0]
    assert code == 0, said
    assert "Traceback" not in said
    code, said = through(home, port=port, arguments=arguments)
    assert code == 0, said
    records_agree(home)


@pytest.fixture
def mirrored(home: Home) -> Home:
    """A workspace with an MLflow store, and a short study in it."""
    code, said = home.knockout("run", "resumed", "--no-prefect", *SHORT)
    assert code == 0, said
    return home


def test_a_store_of_mlflow_that_is_locked_and_then_gone_costs_no_run_and_is_told_all_later(mirrored: Home):
    store = mirrored.folder / "mlflow" / "mlflow.db"
    with closing(sqlite3.connect(store, timeout=60, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        process = mirrored.start("run", "resumed", "--no-prefect", "--seeds", "2", *SHORT)
        until(lambda: len(list((mirrored.folder / "runs").glob("*/result.json"))) == 4)
        kill(process.pid)  # before MLflow heard a word
        mirrored.finish(process)
        connection.execute("ROLLBACK")
    assert "RUNNING" not in {status for (status,) in query(store, "SELECT status FROM runs")}
    code, said = mirrored.knockout("status", "--json")
    assert code == 0, said
    assert json.loads(said)
    invariants(mirrored, complete=False)
    shutil.rmtree(mirrored.folder / "mlflow")
    code, said = mirrored.knockout("run", "sibling", "--no-prefect", *SHORT)
    assert code == 0, said
    code, said = mirrored.knockout("doctor", "--repair")
    assert code == 0, said
    invariants(mirrored, complete=False)


def test_commands_at_the_same_moment_are_shown_in_mlflow_once(home: Home):
    processes = [home.start("run", "resumed", "--no-prefect", *SHORT) for _ in range(3)]
    processes.append(home.start("run", "sibling", "--no-prefect", *SHORT))
    for process in processes:
        code, said = home.finish(process)
        assert code == 0, said
        assert "Traceback" not in said
        assert "locked" not in said
        assert "not mirrored" not in said
    with home.ledger() as ledger:
        asked = {identity for one in ledger.submissions() for identity, *_ in ledger.asked(one.submission)}
        assert [run.attempts for run in ledger.runs(asked)] == [1, 1, 1]
    invariants(home)
