"""The servers that stay: `up` starts what is not running, `status` tells, `down` stops exactly what `up`
started.

The invariant: for each service of a workspace at most one recorded server runs, and nothing of it is left
after `down`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from knockout.errors import InputError, ServiceError
from knockout.services import catalog, state
from knockout.services.catalog import SERVERS, WORKER, Server
from knockout.services.launch import (
    PATIENCE_SECONDS,
    Start,
    answers,
    await_health,
    launch_detached,
)
from knockout.services.locks import locked, store_lock
from knockout.services.processes import Process, describe, end, free_port, identify, is_alive, listener, marked, refusal
from knockout.services.state import Service
from knockout.services.waiting import Say, told

LOCK_SECONDS = PATIENCE_SECONDS + 30.0


@dataclass(frozen=True)
class ServiceStatus:
    """What is known of one service of a workspace."""

    name: str
    running: bool
    """Its guard runs."""
    healthy: bool
    """It answers."""
    url: str | None
    pid: int | None
    since: float | None
    """When it was started, in seconds since the epoch."""


def up(workspace: Path, *, ports: Mapping[str, int] | None = None) -> list[Service]:
    """Start every service that is not running, and wait until all answer, up to 15 minutes while their processes live.

    Raises ServiceError as `begin_up`, and when a server ended or hung while starting (then it is stopped; the others stay
    up).
    """
    return all_of(begin_up(workspace, ports=ports).values())


def begin_up(
    workspace: Path, *, ports: Mapping[str, int] | None = None, say: Say = lambda _: None
) -> dict[str, Future[Service]]:
    """Start every service that is not running; each is there, by its name, when it answers.

    A service that runs already stays as it is. `say` is told what is started, and now and then what is waited for. Raises
    InputError for impossible ports, ServiceError: a port is taken, or a service runs already on another port than the one
    asked for (then nothing is started).
    """
    asked = ports or {}
    wanted = chosen_ports(workspace, ports=asked)
    refusals = [
        why for name, port in wanted.items() if (why := _refused(name, port, workspace, asked=name in asked, say=say))
    ]
    if refusals:
        raise ServiceError("\n".join(refusals))
    return {name: _in_background(workspace, server=SERVERS[name], port=port, say=say) for name, port in wanted.items()}


def all_of(coming: Iterable[Future[Service]]) -> list[Service]:
    """The services, once all answer; what came in the way of any of them, as one ServiceError."""
    errors = [error for future in coming if (error := future.exception()) is not None]
    unexpected = next((error for error in errors if not isinstance(error, ServiceError)), None)
    if unexpected is not None:
        raise unexpected
    if errors:
        raise ServiceError("\n".join(str(error) for error in errors))
    return [future.result() for future in coming]


def _in_background(workspace: Path, *, server: Server, port: int, say: Say) -> Future[Service]:
    """In a thread that nobody waits for when the command is stopped; what it started, the next command finds."""
    future: Future[Service] = Future()

    def work() -> None:
        try:
            future.set_result(up_one(workspace, server=server, port=port, say=say))
        except BaseException as error:  # handed to whoever waits
            future.set_exception(error)

    threading.Thread(target=work, name=f"up-{server.name}", daemon=True).start()
    return future


def up_worker(workspace: Path, *, pool: str, slots: int | None, prefect: str, say: Say = lambda _: None) -> Service:
    """Start the worker of a pool, unless the workspace's worker runs, and wait until it asks for work.

    `prefect` is the address of the Prefect server, `slots` the number of trainings at a time; None: one for each core, or
    GPU. A worker that runs for another address is ended first. Raises ServiceError: it ended or hung while starting.
    """
    return up_one(workspace, server=catalog.worker(pool=pool, slots=slots, prefect=prefect), port=free_port(), say=say)


def chosen_ports(workspace: Path, *, ports: Mapping[str, int]) -> dict[str, int]:
    """A port for each service: the one given, else the one that the workspace used last, else the default.

    Raises ServiceError for an unknown name, InputError for an impossible port, or one port twice.
    """
    for name in ports:
        catalog.find(name)
    chosen = {
        name: ports[name] if name in ports else _usual_port(workspace, server=server) for name, server in SERVERS.items()
    }
    owners: dict[int, str] = {}
    for name, port in chosen.items():
        if not 1 <= port <= 65535:
            raise InputError(f"port {port} for {name} is not between 1 and 65535")
        if (other := owners.setdefault(port, name)) != name:
            raise InputError(f"{other} and {name} cannot both have port {port}; give each a port of its own")
    return chosen


def _usual_port(workspace: Path, *, server: Server) -> int:
    kept = state.kept_port(server.last_port(workspace))
    service = state.read(workspace, server=server) if kept is None else None
    return kept or (service.port if service is not None else server.default_port)


def _refused(name: str, port: int, workspace: Path, *, asked: bool, say: Say) -> str | None:
    """Why a service cannot have a port, or None. What an earlier, killed guard left behind on it is ended."""
    server = SERVERS[name]
    with _alone(workspace, server=server, say=say):
        service = state.read(workspace, server=server)
        if service is not None and state.running(service, path=server.state(workspace)):
            other = asked and service.port != port
            return f"{name} runs already on {service.port}: `knockout down` first for another port" if other else None
        end(marked(mark(workspace, server=server)), grace_seconds=server.grace_seconds)
        return why_taken(port, server=server)


def up_one(workspace: Path, *, server: Server, port: int, say: Say = lambda _: None) -> Service:
    """`up` for one service."""
    with _alone(workspace, server=server, say=say):
        service = _fitting(workspace, server=server, say=say)
        if service is None:
            service = start_anew(workspace, server=server, port=port, say=say)
        start = to_start(workspace, server=server, port=service.port)
        guard, deadline = service.guard, time.monotonic() + PATIENCE_SECONDS
        try:
            await_health(start, guard=guard.pid, is_alive=lambda: is_alive(guard), deadline=deadline, say=say)
        except ServiceError:
            stop(workspace, server=server)
            raise
    return service


@contextmanager
def _alone(workspace: Path, *, server: Server, say: Say) -> Iterator[None]:
    """Hold the lock of a service."""
    with ExitStack() as held:
        with told(f"waiting for another command, which starts {server.name} …", say=say):
            held.enter_context(locked(store_lock(workspace, name=server.name), timeout_seconds=LOCK_SECONDS))
        yield


def _fitting(workspace: Path, *, server: Server, say: Say) -> Service | None:
    """The service that runs, or None; one that works for another Prefect server than it should is ended."""
    service = state.read(workspace, server=server)
    if service is None or not state.running(service, path=server.state(workspace)):
        return None
    if service.prefect == server.prefect:
        return service
    say(f"ending the {server.name} that works for Prefect at {service.prefect or 'another address'}, not {server.prefect}")
    stop(workspace, server=server, say=say)
    return None


def to_start(workspace: Path, *, server: Server, port: int) -> Start:
    """The start of a service that stays."""
    return Start(
        server=server,
        workspace=workspace,
        port=port,
        borrowed=False,
        log=server.log(workspace),
        mark=mark(workspace, server=server),
    )


def mark(workspace: Path, *, server: Server) -> str:
    """The environment entry by which everything of a service is found, even if its guard was killed."""
    return f"KNOCKOUT_SERVICE={server.name}:{workspace.resolve()}"


def start_anew(workspace: Path, *, server: Server, port: int, say: Say) -> Service:
    """Start a service and record it. What an earlier, killed guard left behind is ended first."""
    end(marked(mark(workspace, server=server)), grace_seconds=server.grace_seconds)
    if (why := why_taken(port, server=server)) is not None:
        raise ServiceError(why)
    say(f"starting {server.name} …")
    pid = launch_detached(to_start(workspace, server=server, port=port))
    log = server.log(workspace)
    guard = identify(pid)
    if guard is None:
        raise ServiceError(f"the guard of {server.name} ended at once; see {log}")
    service = Service(server.name, catalog.url(port), port, time.time(), log, guard, server.prefect)
    state.write(service, path=server.state(workspace))
    if server.default_port:  # a worker's is any that is free
        state.keep_port(service, path=server.last_port(workspace))
    return service


def why_taken(port: int, *, server: Server) -> str | None:
    """Why a port cannot be bound, who holds it and what to do, or None."""
    reason = refusal(port)
    if reason is None:
        return None
    why = f"is taken by {describe(listener(port))}" if reason == "taken" else f"cannot be used: {reason}"
    return (
        f"port {port} for {server.name} {why}; stop that process, or give {server.name} another port, "
        f"for example {port + 10}"
    )


def status(workspace: Path) -> list[ServiceStatus]:
    """What runs, of the services that `up` starts."""
    return [status_one(workspace, server=server) for server in (*SERVERS.values(), WORKER)]


def status_one(workspace: Path, *, server: Server) -> ServiceStatus:
    """`status` for one service."""
    service = state.read(workspace, server=server)
    if service is None or not state.running(service, path=server.state(workspace)):
        return ServiceStatus(server.name, running=False, healthy=False, url=None, pid=None, since=None)
    healthy = answers(service.port, path=server.health_path)
    return ServiceStatus(server.name, True, healthy, service.url, service.pid, service.since)


def down(workspace: Path, *, say: Say = lambda _: None) -> list[str]:
    """Stop what `up` started, wait until it is gone, remove the records. Returns the names of what was
    running.

    The worker is stopped first, and tells Prefect how its flow runs ended. `say` is told of what takes longer than two
    seconds to end. Raises ServiceError if a process could not be ended.
    """
    worked = stop(workspace, server=WORKER, say=say)
    with ThreadPoolExecutor(len(SERVERS)) as pool:
        stopped = list(pool.map(lambda server: stop(workspace, server=server, say=say), SERVERS.values()))
    names = [name for name, was_running in zip(SERVERS, stopped, strict=True) if was_running]
    return [*names, WORKER.name] if worked else names


def stop(workspace: Path, *, server: Server, say: Say = lambda _: None) -> bool:
    """`down` for one service. Returns whether anything of it was running."""
    path = server.state(workspace)
    if (before := state.left_behind(workspace, server=server)) is not None:
        raise ServiceError(f"{server.name} still runs for {before}, where this workspace was: {state.ends(before)}")
    service = state.read(workspace, server=server)
    guards: list[Process] = [service.guard] if service is not None and state.running(service, path=path) else []
    # The guard ends what is below it, within its own grace; then come leftovers of a guard that was killed.
    most = f"{server.grace_seconds:.0f} s at most; its log is {server.log(workspace)}"
    with told(f"waiting for {server.name} to end what it has in work, {most}", say=say):
        gone = end(guards, grace_seconds=server.grace_seconds + 10)
        leftovers = marked(mark(workspace, server=server))
        ended = end(leftovers, grace_seconds=server.grace_seconds)
    if not (ended and gone):
        raise ServiceError(f"{server.name} could not be ended: {describe(service.pid if service else None)}")
    path.unlink(missing_ok=True)
    return bool(guards or leftovers)
