"""The worker's side of its warm parent: which flow runs it may have, and a new parent when the old one is no longer right.

The invariant: a flow run comes to the same below a warm parent as in a fresh interpreter: one whose environment, code or
pull steps are others gets a fresh one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from prefect.settings import get_current_settings
from prefect.workers.process import ProcessJobConfiguration

from knockout import project
from knockout.services.warm import Child, ParentProcess, WarmParent
from knockout.training.launcher import warm_environment

FLOWS = project.root() / "flows"
GRACE_SECONDS = 35.0
"""So long flow runs have to end when their worker does."""
OF_A_RUN = "PREFECT__"
"""How the names of variables begin by which Prefect tells a flow run who it is."""
PULL = [{"knockout.project.enter": {}}]


@dataclass(frozen=True)
class Started:
    """A flow run's process."""

    parent: WarmParent
    child: Child


class Warm:
    """Starts the warm parent with the first flow run, and another when it has died or its code has changed."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        self.settings = get_current_settings().to_environment_variables(exclude_unset=True)
        self.lock = threading.Lock()
        self.numbers = count()
        self.parents: list[WarmParent] = []
        self.code = 0

    def takes(self, configuration: ProcessJobConfiguration) -> bool:
        """Whether a flow run may come from the warm parent."""
        deployment = configuration._related_objects.get("deployment")
        plain = configuration.stream_output and configuration.working_dir is None and not configuration._command_configured
        return plain and deployment is not None and deployment.pull_steps == PULL and self._is_usual(configuration.env)

    def launch(self, request: dict[str, object]) -> Started:
        """Have a flow run's process forked; waits until the parent can.

        Raises:
            RunError: it did not come up.
        """
        with self.lock:
            parent = self._parent()
        parent.wait()
        child = Child(next(self.numbers))
        parent.launch(child, request=request)
        return Started(parent, child)

    def close(self) -> None:
        """End the flow runs, and then the parents."""
        for parent in self.parents:
            parent.close(grace_seconds=GRACE_SECONDS)

    def _is_usual(self, environment: Mapping[str, str | None]) -> bool:
        """Whether a flow run has the worker's own environment, beside what Prefect tells it of itself."""
        given = ((name, value) for name, value in environment.items() if not name.startswith(OF_A_RUN))
        return all(value in (self.environment.get(name), self.settings.get(name)) for name, value in given)

    def _parent(self) -> WarmParent:
        """The parent that forks now. One whose code is old ends when its flow runs have."""
        code = _newest_code()
        if not self.parents or self.parents[-1].dead or code != self.code:
            self.parents.append(WarmParent(partial(_start, self.environment), name="the flow runs' parent"))
            self.code = code
        for parent in [one for one in self.parents[:-1] if one.dead or one.is_idle()]:
            parent.close()
            self.parents.remove(parent)
        return self.parents[-1]


def _newest_code() -> int:
    """When a file of the flows or the package was last changed, in nanoseconds; some milliseconds."""
    folders = (FLOWS, Path(project.__file__).parent)
    return max(path.stat().st_mtime_ns for folder in folders for path in folder.rglob("*.py"))


def _start(environment: Mapping[str, str]) -> ParentProcess:
    return subprocess.Popen(
        [sys.executable, str(FLOWS / "warm.py"), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=warm_environment(environment),
    )
