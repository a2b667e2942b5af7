"""What is declared for pools fits the code, and the job template fills in."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from knockout import project
from knockout.declare.document import read_document
from knockout.services.catalog import POOL, STUDIES, TRAINING

FLOWS = project.root() / "flows"


def flows_of(file: Path) -> dict[str, str]:
    """The name of each flow of a file, by its function; the file's constants are read where a name is one."""
    constants = {"FLOW": "study"}
    found: dict[str, str] = {}
    for function in ast.parse(file.read_text()).body:
        for decorator in function.decorator_list if isinstance(function, ast.FunctionDef) else ():
            assert isinstance(decorator, ast.Call)
            name = next(word.value for word in decorator.keywords if word.arg == "name")
            text = name.value if isinstance(name, ast.Constant) else constants[ast.unparse(name)]
            found[function.name] = str(text)
    return found


def test_every_deployment_names_a_flow_of_its_own_name_and_a_queue_that_a_worker_serves():
    deployments = {one["name"]: one for one in read_document(FLOWS / "prefect.yaml").data["deployments"]}
    assert deployments.keys() >= {"study", "training", "corpus", "nightly", "reproduce"}
    queues = {name: one["work_pool"].pop("work_queue_name") for name, one in deployments.items()}
    assert (queues["study"], queues["training"], queues["nightly"]) == (STUDIES, TRAINING, STUDIES)
    assert set(queues.values()) == {STUDIES, TRAINING}
    for name, one in deployments.items():
        file, _, function = one["entrypoint"].partition(":")
        assert flows_of(Path(project.root(), file))[function] == name
        assert one["work_pool"] == {"name": POOL}


def test_parameters_are_addresses_names_and_numbers():
    trees = [ast.parse((FLOWS / name).read_text()) for name in ("deployed.py", "bringing.py")]
    flows = [node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    assert len(flows) >= 5
    plain = {"str", "int", "float", "list", "None", "Strategy"}
    for flow in flows:
        names = {
            node.id
            for one in flow.args.args
            if one.annotation
            for node in ast.walk(one.annotation)
            if isinstance(node, ast.Name)
        }
        assert names <= plain, flow.name


def test_the_job_template_uses_what_it_declares_and_declares_what_it_uses():
    template = json.loads((FLOWS / "kubernetes" / "base-job-template.json").read_text())
    used = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(template["job_configuration"])))
    assert used == template["variables"]["properties"].keys()
    assert set(template["variables"]["required"]) <= used
    (container,) = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "{{ gpus }}"
    assert template["variables"]["properties"]["gpus"]["default"] == 0
