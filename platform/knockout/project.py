"""Where the content folders are: a checkout, or the copy that rides in the wheel.

The invariant: `root()` always holds flows/, ablations/, data/ and dashboards/. A user's own project folder (the
current directory) is searched first, so that a study there can name its own sizes and corpora.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

CONTENT_FOLDERS = ("flows", "ablations", "data", "dashboards")
ENDINGS = (".yaml", ".yml")
"""Of a declaration's file."""


@cache
def root() -> Path:
    """The folder that holds the shipped content folders."""
    package = Path(__file__).resolve().parent
    shipped = package / "project_files"
    return shipped if shipped.is_dir() else package.parents[1]


def search_path(folder: str) -> tuple[Path, ...]:
    """Folders in which a name is looked up: the current project's, then the shipped one."""
    places = (Path.cwd() / folder, root() / folder)
    return tuple(dict.fromkeys(place for place in places if place.is_dir()))


def find(folder: str, name: str) -> Path | None:
    """The file `NAME.yaml`, or `NAME.yml`, in a content folder, or None."""
    paths = (place / f"{name}{ending}" for place in search_path(folder) for ending in ENDINGS)
    return next((path for path in paths if path.is_file()), None)


def names(folder: str) -> list[str]:
    """Every name that `find` would find in a content folder, sorted."""
    return sorted({path.stem for place in search_path(folder) for path in place.iterdir() if path.suffix in ENDINGS})


def enter(**_: object) -> dict[str, str]:
    """Prefect's pull step: the working directory of a flow run is the shipped content root."""
    return {"directory": str(root())}
