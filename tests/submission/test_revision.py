"""The revision of the code: of a checkout, in real git repositories, and of nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from knockout.submission.revision import revision

ME = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost", "-c", "commit.gpgsign=false")


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit, and the package where this one lies in its own."""
    folder = tmp_path / "checkout"
    (folder / "platform" / "package").mkdir(parents=True)
    (folder / "platform" / "package" / "code.py").write_text("one = 1\n")
    (folder / "RESULTS.md").write_text("none yet\n")
    git(tmp_path, "init", "--quiet", str(folder))
    git(folder, "add", ".")
    git(folder, *ME, "commit", "--quiet", "--message", "first")
    return folder


def test_it_is_the_short_commit_and_a_plus_where_the_package_differs_from_it(checkout: Path) -> None:
    package = checkout / "platform" / "package"
    commit = git(checkout, "rev-parse", "--short", "HEAD")
    assert revision(package) == commit
    (checkout / "RESULTS.md").write_text("a result is no change of the code\n")
    assert revision(package) == commit
    (package / "new.py").write_text("two = 2\n")
    assert revision(package) == f"{commit}+"
    (package / "new.py").unlink()
    (package / "code.py").write_text("one = 3\n")
    assert revision(package) == f"{commit}+"


def test_an_installed_package_has_none_also_inside_somebodys_repository(checkout: Path, tmp_path: Path) -> None:
    installed = checkout / ".venv" / "lib" / "python3.11" / "site-packages" / "package"
    installed.mkdir(parents=True)
    assert revision(installed) is None
    assert revision(tmp_path / "nowhere" / "platform" / "package") is None


def test_a_repository_that_git_cannot_read_has_none(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert revision(tmp_path / "platform" / "package") is None


def test_variables_that_name_another_repository_are_not_heeded(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = git(checkout, "rev-parse", "--short", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert revision(checkout / "platform" / "package") == commit
