"""A data set of the Hugging Face hub to the Parquet files that hold one of its splits.

The invariant: the card's `configs` decide where it has them, else the names of files as the hub's own library reads them; a
configuration or split that is not there is an error that lists those that are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from knockout.corpus.files.stores import file_system, reading
from knockout.declare.problems import nearest
from knockout.declare.text_sources import HuggingFace
from knockout.errors import CorpusError, DeclarationError

ENDING = ".parquet"
SPLIT_NAMES = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test", "eval")}
"""What files of the usual splits are called (docs of the hub, "File names and splits")."""

WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def find_parquet(source: HuggingFace) -> list[str]:
    """The hf:// addresses of a split's files.

    Raises:
        CorpusError: the data set, its configuration or split is not there, or is not stored as Parquet.
    """
    root = f"hf://datasets/{source.dataset}@{source.revision.replace('/', '%2F')}"
    with reading(root):
        files = file_system(root)
        files.invalidate_cache()
        names = [files.resolve_path(name).path_in_repo for name in files.find(root)]
        card = files.cat_file(f"{root}/README.md") if "README.md" in names else b""
    tables = [name for name in names if name.endswith(ENDING)]
    if not tables:
        raise CorpusError(f"{root}: holds no Parquet files; name its files by their addresses: kind: files")
    configs = list(_configs(card, where=root))
    found = _declared(source, configs, tables, where=root) if configs else _named(source, tables, where=root)
    return [f"{root}/{name}" for name in found]


def _configs(card: bytes, *, where: str) -> Iterator[Mapping[str, Any]]:
    """The configurations that a card declares with files."""
    head = re.match(rb"---\s*\n(.*?)\n---\s*(\n|$)", card, re.DOTALL)
    if head is None:
        return
    from knockout.declare.document import parse_document

    try:
        about = parse_document(head[1].decode("utf-8", "replace"), file=f"{where}/README.md").data
    except DeclarationError as error:
        raise CorpusError(f"{where}: its card cannot be read: {error}") from None
    for config in about.get("configs") or []:
        if isinstance(config, Mapping) and config.get("data_files"):
            yield config


def _declared(source: HuggingFace, configs: Sequence[Mapping[str, Any]], tables: Sequence[str], *, where: str) -> list[str]:
    config = _config(source, configs, where=where)
    splits = _splits(config["data_files"])
    if source.split not in splits:
        there = f"there are {', '.join(splits)}{nearest(source.split, splits)}"
        raise CorpusError(f"{where}: configuration {config.get('config_name')} has no split '{source.split}'; {there}")
    found = [name for pattern in splits[source.split] for name in tables if _matches(name, pattern)]
    if not found:
        patterns = ", ".join(splits[source.split])
        raise CorpusError(f"{where}: no Parquet files are called {patterns}; name its files by their addresses: kind: files")
    return sorted(set(found))


def _config(source: HuggingFace, configs: Sequence[Mapping[str, Any]], *, where: str) -> Mapping[str, Any]:
    by_name = {str(config.get("config_name", "default")): config for config in configs}
    wanted = source.config
    if wanted is None:
        defaults = [name for name, config in by_name.items() if config.get("default") is True]
        wanted = next(iter(by_name)) if len(by_name) == 1 else next(iter([*defaults, "default"]))
    if wanted not in by_name:
        said = f"no configuration '{wanted}'" if source.config else "several configurations: name one in `config`"
        raise CorpusError(f"{where}: {said}; there are {_few(by_name)}{nearest(wanted, by_name)}")
    return by_name[wanted]


def _splits(data_files: Any) -> dict[str, list[str]]:
    """Patterns by split; a card may give one pattern, a list of them, or splits with either."""
    splits: dict[str, list[str]] = {}
    for entry in data_files if isinstance(data_files, list) else [data_files]:
        split, patterns = (entry.get("split", "train"), entry["path"]) if isinstance(entry, Mapping) else ("train", entry)
        splits.setdefault(str(split), []).extend([patterns] if isinstance(patterns, str) else patterns)
    return splits


def _named(source: HuggingFace, tables: Sequence[str], *, where: str) -> list[str]:
    """Files whose folder is called after the configuration, and whose folder or name begins with the split's."""
    folder = "" if source.config in (None, "default") else f"{source.config}/"
    inside = [name for name in tables if name.startswith(folder)]
    if not inside:
        folders = sorted({name.split("/")[0] for name in tables if "/" in name})
        said = f"no configuration '{source.config}'; there are {_few(folders)}"
        raise CorpusError(f"{where}: {said}{nearest(source.config or '', folders)}")
    names = "|".join(map(re.escape, SPLIT_NAMES.get(source.split, (source.split,))))
    called = re.compile(rf"(?:^|.*[/._-])(?:{names})(?:[/._-].*)?$")
    found = [name for name in inside if called.fullmatch(name.removesuffix(ENDING).removeprefix(folder))]
    if not found:
        raise CorpusError(f"{where}: no split '{source.split}' among its Parquet files: {_few(inside)}")
    return found


def _matches(name: str, pattern: str) -> bool:
    """Whether a path matches a card's pattern: `*` stays within a folder, `**` does not."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.fullmatch("".join(WILD.get(part, re.escape(part)) for part in parts), name) is not None


def _few(names: Sequence[str] | Mapping[str, Any]) -> str:
    listed = list(names)
    return ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")
