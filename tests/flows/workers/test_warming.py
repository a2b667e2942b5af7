"""Which flow runs may be forked from a worker's warm parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from knockout import project

ASK = """if True:
    import json, os, sys
    sys.path.insert(0, sys.argv[1])
    from types import SimpleNamespace
    from prefect.workers.process import ProcessJobConfiguration
    from workers.warming import Warm, _newest_code

    def takes(*, pull=[{"knockout.project.enter": {}}], related=True, **settings):
        environment = {**os.environ, "PREFECT__FLOW_RUN_ID": "1", **settings.pop("env", {})}
        configuration = ProcessJobConfiguration(env=environment, **settings)
        if related:
            configuration._related_objects = {"deployment": SimpleNamespace(pull_steps=pull)}
        return warm.takes(configuration)

    warm = Warm()
    commanded = ProcessJobConfiguration()
    print(json.dumps({
        "usual": takes(),
        "as Prefect writes a setting": takes(env={"PREFECT_LOGGING_COLORS": "False"}),
        "other path": takes(env={"PYTHONPATH": "/elsewhere"}),
        "other setting": takes(env={"PREFECT_LOGGING_COLORS": "True"}),
        "folder": takes(working_dir="/tmp"),
        "silent": takes(stream_output=False),
        "other code": takes(pull=[{"prefect.deployments.steps.git_clone": {}}]),
        "no deployment": takes(related=False),
        "code is dated": _newest_code() > 0,
    }))"""


def test_only_a_flow_run_with_the_workers_environment_and_code_is_forked():
    command = [sys.executable, "-c", ASK, str(project.root() / "flows")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PREFECT_LOGGING_COLORS": "false"}
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert json.loads(said.stdout) == {
        "usual": True,
        "as Prefect writes a setting": True,
        "other path": False,
        "other setting": False,
        "folder": False,
        "silent": False,
        "other code": False,
        "no deployment": False,
        "code is dated": True,
    }
