"""The Kubernetes pool's job template and its worker, as far as they can be tried without a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import jsonpatch
import pytest
import yaml

from knockout import project
from knockout.ledger.workspace import VARIABLE as HOME
from knockout.services.catalog import POOL

FOLDER = project.root() / "flows" / "kubernetes"
FILL = """if True:
    import asyncio, json, sys
    from uuid import uuid4
    from prefect.client.schemas.objects import FlowRun
    from prefect.workers.base import BaseJobConfiguration

    class Job(BaseJobConfiguration):
        namespace: str = "default"
        job_manifest: dict
        cluster_config: dict | None = None
        job_watch_timeout_seconds: int | None = None
        pod_watch_timeout_seconds: int = 60
        stream_output: bool = True

    template, values = json.loads(sys.argv[1]), json.loads(sys.argv[2])
    job = asyncio.run(Job.from_template_and_values(template, values))
    job.prepare_for_flow_run(FlowRun(id=uuid4(), name="odd-name", flow_id=uuid4()))
    print(job.model_dump_json())"""
"""Fills a template in as Prefect's workers do; with the fields of prefect_kubernetes' KubernetesWorkerJobConfiguration."""
BASE = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"annotations": {}, "labels": {}},
    "spec": {
        "template": {
            "spec": {"parallelism": 1, "completions": 1, "restartPolicy": "Never", "containers": [{"name": "prefect-job"}]}
        }
    },
}
"""What every job must hold: prefect_kubernetes/worker.py, `_get_base_job_manifest`; its validator refuses what lacks or
contradicts any of it, and fills in annotations and labels."""


def filled(**values: Any) -> dict[str, Any]:
    """The job that the worker would make of the template with a deployment's variables."""
    template = (FOLDER / "base-job-template.json").read_text()
    environment = {**os.environ, "PREFECT_API_URL": "http://prefect.example:4200/api"}
    done = subprocess.run(
        [sys.executable, "-c", FILL, template, json.dumps(values)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def job() -> dict[str, Any]:
    return filled(image="lab/knockout:1", gpus=4)


def container(job: dict[str, Any]) -> dict[str, Any]:
    (found,) = job["job_manifest"]["spec"]["template"]["spec"]["containers"]
    return found


def test_a_job_has_all_that_the_kubernetes_worker_demands(job):
    manifest = {**job["job_manifest"], "metadata": {"annotations": {}, **job["job_manifest"]["metadata"]}}
    patch = jsonpatch.JsonPatch.from_diff(manifest, BASE)
    assert [step for step in patch if step["op"] in ("add", "replace") and step["path"] != "/metadata/labels"] == []
    assert "{{" not in json.dumps(job)


def test_a_job_runs_prefects_command_with_what_a_flow_run_needs(job):
    assert job["env"]["PREFECT_API_URL"] == "http://prefect.example:4200/api"
    assert job["env"][HOME] == "/workspace"
    assert container(job)["envFrom"] == [{"secretRef": {"name": "knockout", "optional": True}}]
    assert "args" not in container(job), "the worker writes its own command where none is given"
    assert container(filled(image="lab/knockout:1", command="python -m mine"))["args"] == "python -m mine"
    (mounted,) = [one for one in container(job)["volumeMounts"] if one["name"] == "workspace"]
    assert mounted["mountPath"] == job["env"][HOME]


def test_a_training_asks_for_its_gpus_and_a_study_for_none(job):
    assert container(job)["resources"]["limits"]["nvidia.com/gpu"] == 4
    assert container(filled(image="lab/knockout:1"))["resources"]["limits"]["nvidia.com/gpu"] == 0


def test_the_worker_is_declared_whole_and_started_by_a_command_that_exists():
    documents = {one["kind"]: one for one in yaml.safe_load_all((FOLDER / "worker.yaml").read_text())}
    assert documents.keys() == {
        "Namespace", "PersistentVolumeClaim", "ServiceAccount", "Role", "RoleBinding", "Deployment",
    }  # fmt: skip
    namespace = documents["Namespace"]["metadata"]["name"]
    assert {one["metadata"].get("namespace", namespace) for one in documents.values()} == {namespace}
    template = json.loads((FOLDER / "base-job-template.json").read_text())["variables"]["properties"]
    assert template["namespace"]["default"] == namespace
    assert template["workspace_claim"]["default"] == documents["PersistentVolumeClaim"]["metadata"]["name"]
    account = documents["ServiceAccount"]["metadata"]["name"]
    pod = documents["Deployment"]["spec"]["template"]["spec"]
    assert {pod["serviceAccountName"], documents["RoleBinding"]["subjects"][0]["name"]} == {account}
    assert documents["RoleBinding"]["roleRef"]["name"] == documents["Role"]["metadata"]["name"]
    (worker,) = pod["containers"]
    program, *words = worker["command"]
    assert (program, words[:2]) == ("prefect", ["worker", "start"])
    done = subprocess.run(
        [sys.executable, "-m", "prefect", *words[:2], "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {word for word in words if word.startswith("--")} <= set(done.stdout.replace("│", " ").split())
    assert words[words.index("--pool") + 1] != POOL, "the default pool is one of processes"
    assert {one["name"] for one in worker["env"]} == {"PREFECT_API_URL", "DO_NOT_TRACK", HOME}
