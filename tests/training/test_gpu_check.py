"""`make gpu-check` on a CPU: everything but the device, in an environment that has only what training needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from knockout.training import gpu_check

OTHERS = {"prefect", "mlflow", "polars", "tokenizers", "sqlalchemy", "ruamel", "typer", "optuna", "jinja2", "alembic"}
WITHOUT = """
import importlib.machinery
absent = {absent}
found = importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = classmethod(
    lambda cls, name, path=None, target=None: None if name.split(".")[0] in absent else found(name, path, target)
)
"""


def brought_by_lightning() -> set[str]:
    """Modules that Lightning imports by itself where they are installed, and does not start without."""
    code = "import pytorch_lightning, sys; print(*{name.split('.')[0] for name in sys.modules})"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_every_check_holds_on_a_cpu_with_only_the_libraries_that_training_needs(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT.format(absent=OTHERS - brought_by_lightning()))
    command = [sys.executable, "-m", "knockout.training.gpu_check", "--device", "cpu", "--small"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok  ") == 6
    assert "equal bit for bit after SIGTERM and SIGKILL" in done.stdout
    assert "its weights are those of before" in done.stdout


def test_without_a_gpu_it_says_so_in_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu_check.torch.cuda, "is_available", lambda: False)
    assert gpu_check.main([]) == 1
    assert capsys.readouterr().out == "gpu-check: torch sees no CUDA device on this machine\n"


def test_a_check_that_does_not_hold_is_a_line_and_no_traceback(capsys: pytest.CaptureFixture[str]):
    def fail() -> str:
        raise gpu_check.Failed("the batches differ")

    assert not gpu_check.check("data order", fail)
    assert capsys.readouterr().out.startswith("FAIL data order: the batches differ (")
