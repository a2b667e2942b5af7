"""The direction of imports, who may import which engine, and what a start costs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import knockout
from knockout import project
from knockout.services import apply_quiet_environment
from knockout.services.environment import TELEMETRY_OFF

PACKAGE = Path(knockout.__file__).parent
LOW = {"errors", "project"}
BELOW: dict[str, set[str]] = {
    "errors": set(),
    "project": {"errors"},
    "services": LOW,
    "declare": LOW,
    "account": LOW | {"declare"},
    "model": LOW | {"declare", "account"},
    "corpus": LOW | {"declare"},
    "ledger": LOW | {"declare", "services"},
    "training": LOW | {"declare", "account", "model", "corpus", "ledger", "services"},
    "search": LOW | {"declare", "account", "model", "corpus", "ledger", "services"},
    "tracking": LOW | {"declare", "account", "model", "corpus", "ledger", "services"},
    "judge": LOW | {"declare", "account", "model", "corpus", "ledger"},
    "history": LOW | {"declare", "account", "model", "corpus", "ledger", "judge"},
    "report": LOW | {"declare", "account", "model", "corpus", "ledger", "judge", "history"},
}
BELOW["submission"] = {room for room in BELOW if room != "submission"}
BELOW["upkeep"] = {room for room in BELOW if room != "upkeep"}
BELOW["cli"] = {*BELOW} - {"cli"}
BELOW["__main__"] = {"cli"}
"""For each room those that it may import: nothing points back."""

ENGINES = {
    "prefect": set(),
    "mlflow": {"tracking"},
    "optuna": {"search"},
    "pytorch_lightning": {"training"},
    "lightning_fabric": {"training"},
}
"""For each engine the rooms of the package that may import it; flows/ alone imports Prefect."""


def rooms() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in PACKAGE.rglob("*.py"):
        inside = path.relative_to(PACKAGE)
        if inside.parts[0] not in ("project_files", "__init__.py"):
            found.setdefault(inside.parts[0].removesuffix(".py"), []).append(path)
    return found


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file names, also inside functions, with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            if node.module == "knockout":
                yield from ((f"knockout.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield str(node.module), node.lineno


def test_every_room_is_known():
    assert set(rooms()) <= set(BELOW)


@pytest.mark.parametrize("room", sorted(rooms()))
def test_no_room_imports_one_above_it(room: str):
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: {module}"
        for path in rooms()[room]
        for module, line in imports(path)
        if module.startswith("knockout.")
        and (other := module.split(".")[1]) not in (room, "__version__")
        and other not in BELOW[room]
    ]
    assert wrong == []


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_each_engine_has_one_room(engine: str):
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for room, paths in rooms().items()
        if room not in ENGINES[engine]
        for path in paths
        for module, line in imports(path)
        if module.split(".")[0] == engine
    ]
    assert wrong == []


def test_flows_import_no_engine_but_prefect():
    found = {m.split(".")[0] for path in (project.root() / "flows").rglob("*.py") for m, _ in imports(path)}
    assert "prefect" in found
    assert found.isdisjoint(set(ENGINES) - {"prefect"})


def loaded(*modules: str) -> set[str]:
    """Top-level modules that a fresh interpreter has after importing some."""
    code = f"import {', '.join(modules)}, sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return set(said.stdout.split())


def test_the_command_line_starts_without_anything_heavy():
    heavy = {
        "torch", "numpy", "scipy", "mlflow", "prefect", "optuna", "polars", "pyarrow", "pydantic", "sqlalchemy", "rich",
        "ruamel", "tokenizers", "matplotlib", "jinja2", "pytorch_lightning",
    }  # fmt: skip
    assert loaded("knockout.cli.app") & heavy == set()


def test_status_loads_nothing_that_only_training_and_verdicts_need():
    heavy = {"torch", "scipy", "mlflow", "prefect", "optuna", "polars", "matplotlib", "tokenizers", "pytorch_lightning"}
    assert loaded("knockout.cli.standing") & heavy == set()


def test_the_training_path_does_not_pay_for_the_others():
    others = {"polars", "tokenizers", "mlflow", "prefect", "optuna", "sqlalchemy", "typer", "ruamel", "jinja2"}
    code = """if True:
        import sys, torch, pytorch_lightning
        before = {name.split(".")[0] for name in sys.modules}
        import knockout.training.run, knockout.training.nursery
        print(*{name.split(".")[0] for name in sys.modules} - before)"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "knockout" in said.stdout.split()
    assert others.isdisjoint(said.stdout.split()), "more than Lightning itself brings in"


def test_the_owner_of_runs_needs_no_torch():
    assert loaded("knockout.submission.road") & {"torch", "pytorch_lightning", "mlflow", "prefect", "optuna"} == set()


def test_every_switch_that_stops_a_call_to_the_outside_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "environ", {**os.environ})
    apply_quiet_environment(tmp_path)
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert os.environ["DO_NOT_TRACK"] == "1"
    assert os.environ["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] == "false"
    assert TELEMETRY_OFF.items() <= os.environ.items()


def test_engines_take_the_switches(tmp_path: Path):
    code = """if True:
        import sys
        from pathlib import Path
        from knockout.services import apply_quiet_environment
        apply_quiet_environment(Path(sys.argv[1]))
        from mlflow.telemetry.utils import is_telemetry_disabled
        from prefect.settings import get_current_settings
        settings = get_current_settings()
        print(is_telemetry_disabled(), settings.server.analytics_enabled, settings.server.ephemeral.enabled)"""
    said = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True", "False", "False"]
