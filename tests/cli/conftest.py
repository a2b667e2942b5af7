"""A project folder with tiny studies, and real `knockout` processes in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import TINY, Home, ended_with, opened, write_files
from commands import until as wait_until

from knockout.cli.app import run

STUDY = """study: small
question: Does a tiny stack learn a chain without its residual path?
corpus: tiny
size: pico
baseline:
  {width: 16, heads: 2, depth: 2, context: 16, vocabulary: 32, batch: 4, tokens: 6400, warmup_steps: 10, evaluations: 20}
variants:
  no-residual: {residual: {kind: none}}
seeds: 1
competence: {floor: unigram, by: 0.1}
claims:
  - id: one
    says: It sees nothing of what comes later
    expect: {variant: no-residual, is: causal}
"""
OTHER = STUDY.replace("study: small", "study: other").replace(
    "no-residual: {residual: {kind: none}}", "no-norm: {norm: {kind: none}}"
).replace("no-residual", "no-norm")  # fmt: skip
DIVERGING = STUDY.replace("study: small", "study: hot").replace(
    "no-residual: {residual: {kind: none}}", "hot: {learning_rate: 1000000.0, clip: null, norm: {kind: none}}"
).replace("variant: no-residual, is: causal", "variant: hot, is: better").replace("seeds: 1", "seeds: 3")  # fmt: skip


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("project"), files={
        "data/tiny.yaml": TINY, "ablations/small.yaml": STUDY, "ablations/other.yaml": OTHER,
        "ablations/hot.yaml": DIVERGING,
    })  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, project: Path) -> Iterator[Home]:
    yield from opened(tmp_path / "home", project=project)


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Iterator[Home]:
    yield from opened(tmp_path_factory.mktemp("shared") / "home", project=project)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Iterator[Home]:
    """A workspace in which two studies that share their baseline are done, with MLflow. For tests that only read or copy."""
    for home in opened(tmp_path_factory.mktemp("finished") / "home", project=project):
        for study in ("small", "other"):
            code, said = home.knockout("run", study, "--no-prefect")
            assert code == 0, said
        yield home


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process: its exit code, and what it said on standard output and standard error."""

    def tell(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["knockout", *arguments])
        code = ended_with(run)
        said = capsys.readouterr()
        return code, said.out, said.err

    return tell


@pytest.fixture(scope="session")
def until() -> Callable[..., None]:
    """Wait until a condition holds; fails when it does not in time."""
    return wait_until
