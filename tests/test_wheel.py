"""The wheel: what a user without a checkout gets."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
    ]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_the_wheel_holds_one_package_and_all_content_folders(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"knockout"}
    for folder in ("flows", "ablations", "data", "dashboards"):
        shipped = {name.removeprefix("knockout/project_files/") for name in names if f"project_files/{folder}/" in name}
        tracked = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".yaml")}
        assert tracked
        assert tracked <= shipped


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "causal-mask"], "2 cells"),
        (["params", "gpt2"], "124,439,808"),
        (["plan", "residual", "--no-calibrate"], "no-residual"),
    ],
)
def test_commands_work_from_the_wheel_in_an_empty_folder(arguments: list[str], says: str, installed: Path, tmp_path: Path):
    command = [sys.executable, "-c", "from knockout.cli import main; main()", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert says in done.stdout
