"""From a study's file to everything that it refers to: sizes, preset, recipe, corpus.

Files are read here and nowhere else; `expand` turns what was read into a plan without touching the disk.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from knockout import project
from knockout.declare.answerable import judged_on_one_seed, trends_of_one_size
from knockout.declare.architecture import Architecture
from knockout.declare.base import Declaration, Name
from knockout.declare.corpus import Corpus
from knockout.declare.document import Document, Mark, Path_, check_readable, parse_document, read_document
from knockout.declare.problems import nearest, problems
from knockout.declare.size import Size
from knockout.declare.study import Study
from knockout.errors import DeclarationError, InputError, Problem, quoted

Model = TypeVar("Model", bound=BaseModel)


class Preset(Declaration):
    """A named architecture, with the publication that it is taken from."""

    preset: Name
    """The preset's name."""
    source: str
    """Where the figures are published."""
    architecture: Architecture
    """The whole declaration."""


@dataclass(frozen=True)
class Loaded:
    """A study and the declarations that it refers to, each with the places where its values were written."""

    study: Study
    document: Document
    text: str
    corpus: Corpus | None
    """None only where there are problems."""
    corpus_base: Path
    sizes: Mapping[str, Document]
    known_sizes: tuple[str, ...]
    """Every size that there is."""
    preset: Document | None
    recipe: Document | None
    overrides: Overrides
    problems: tuple[Problem, ...]
    """What is wrong with the study beside its cells; `expand` tells it with what is wrong with those."""


@dataclass(frozen=True)
class Overrides:
    """What the command line changes in a study's file."""

    size: str | None = None
    seeds: int | None = None
    settings: tuple[str, ...] = ()
    settle: bool = False
    """Whether the study is looked at again, with more seeds, while a claim is open."""
    from_seed: int | None = None
    """The first seed, in the place of the study's own seeds: as many from there on."""

    def apply(self, document: Document) -> Document:
        """The study's document with the changes in it."""
        data, marks = dict(document.data), dict(document.marks)
        if self.size is not None:
            check_readable(self.size, option="--size")
            data.pop("sizes", None)
            data["size"] = self.size
            marks["size",] = Mark("--size", 0, 0)
        if self.seeds is not None:
            data["seeds"] = self.seeds
            marks["seeds",] = Mark("--seeds", 0, 0)
        if self.from_seed is not None:
            seeds = data.get("seeds", Study.model_fields["seeds"].default)
            count = len(seeds) if isinstance(seeds, list) else seeds if isinstance(seeds, int) else 0
            data["seeds"] = list(range(self.from_seed, self.from_seed + count))
            marks["seeds",] = Mark("--from-seed", 0, 0)
        return Document(data, marks)

    @property
    def patch(self) -> Document:
        """The settings, as a patch on the baseline at every size."""
        assigned = [(text, *_assignment(text)) for text in self.settings]
        marks: dict[Path_, Mark] = {(path,): Mark(f"--set {text}", 0, 0) for text, path, _ in assigned}
        return Document({path: value for _, path, value in assigned}, marks)

    @property
    def arguments(self) -> str:
        """The same changes as arguments of the command line."""
        size = [] if self.size is None else ["--size", self.size]
        seeds = [] if self.seeds is None else ["--seeds", str(self.seeds)]
        settle = ["--settle"] if self.settle else []
        first = [] if self.from_seed is None else ["--from-seed", str(self.from_seed)]
        return shlex.join([*size, *seeds, *settle, *first, *(word for text in self.settings for word in ("--set", text))])


def as_path(name: str) -> Path | None:
    """The path that a word on the command line is; None where it is a name."""
    path = Path(name)
    return path if path.suffix in (".yaml", ".yml") or path.parent != Path() else None


def find_study(name: str) -> Path:
    """The file of a study given as a path or by name.

    Raises:
        InputError: there is none.
    """
    if (path := as_path(name)) is not None:
        return path
    if (found := project.find("ablations", name)) is not None:
        return found
    known = project.names("ablations")
    raise InputError(f"no study {quoted(name)} in ablations/ ({_there(known)}){nearest(name, known)}")


def load_study(path: Path, *, overrides: Overrides | None = None) -> Loaded:
    """Read a study and all that it refers to; problems that leave something to expand are kept for `expand` to tell.

    Raises:
        DeclarationError: too much is wrong to go on, or a file is not YAML.
        InputError: a file cannot be read.
    """
    overrides = overrides or Overrides()
    found: list[Problem] = []
    document = overrides.apply(read_document(path))
    study = _sound_part(document, found)
    if overrides.settle and study.settle is None:
        raise InputError(
            f"{path.name} declares no further looks: name them before the first run, as in `settle: [6, 12]` (seeds in all)"
        )
    sizes = {
        name: _referred(document, _size_path(study, name), "sizes", name, load_size, found) for name in study.size_names
    }
    corpus = _referred(document, ("corpus",), "", study.corpus, load_corpus, found, folder="data")
    preset = _referred(document, ("preset",), "presets", study.preset, load_preset, found)
    recipe = _referred(document, ("recipe",), "recipes", study.recipe, load_recipe, found)
    if overrides.size is None:
        found += trends_of_one_size(study, document=document)
    if overrides.seeds is None:
        found += judged_on_one_seed(study, document=document)
    declared, base = corpus if corpus is not None else (None, path.parent)
    return Loaded(
        study=study,
        document=document,
        text=path.read_text("utf-8-sig"),
        corpus=declared,
        corpus_base=base,
        sizes={name: size for name, size in sizes.items() if size is not None},
        known_sizes=tuple(project.names("ablations/sizes")),
        preset=preset,
        recipe=recipe,
        overrides=overrides,
        problems=tuple(found),
    )


def _sound_part(document: Document, found: list[Problem]) -> Study:
    """The study without the keys that are wrong; their problems are added to `found`.

    Raises:
        DeclarationError: nothing sound is left.
    """
    try:
        return validate(document, model=Study)
    except DeclarationError as error:
        found.extend(error.problems)
        wrong = {problem.path.split(".")[0] for problem in error.problems}
    sound = {key: value for key, value in document.data.items() if key not in wrong}
    try:
        return validate(Document({"study": "unnamed", "question": "unasked", **sound}, document.marks), model=Study)
    except DeclarationError:
        raise DeclarationError(found) from None


def load_size(name: str) -> Document:
    """A size's settings by name; raises InputError when there is none, DeclarationError when it is wrong."""
    document = read_document(_find("ablations", "sizes", name, what="size"))
    validate(document, model=Size)
    return _without(document, "size")


def load_recipe(name: str) -> Document:
    """A recipe's settings by name; raises as `load_size`."""
    return _without(read_document(_find("ablations", "recipes", name, what="recipe")), "name")


def load_preset(name: str) -> Document:
    """A preset's architecture by name; raises as `load_size`."""
    document = read_document(_find("ablations", "presets", name, what="preset"))
    validate(document, model=Preset)
    return document.at("architecture")


def load_corpus(name: str) -> tuple[Corpus, Path]:
    """A corpus declaration by name, and the folder that its relative paths start from; raises as `load_size`."""
    return read_corpus(_find("data", "", name, what="corpus"))


def find_corpus(name: str) -> Path:
    """The file of a corpus declaration given as a path or by name; raises InputError as `find_study`."""
    return as_path(name) or _find("data", "", name, what="corpus")


def read_corpus(path: Path) -> tuple[Corpus, Path]:
    """A corpus declaration, and the folder that its relative paths start from; raises DeclarationError or InputError."""
    return validate(read_document(path), model=Corpus), path.resolve().parent


def validate(document: Document, *, model: type[Model]) -> Model:
    """The document as a declaration; raises DeclarationError with every problem."""
    try:
        return model.model_validate_json(json.dumps(document.data))
    except ValidationError as error:
        raise DeclarationError(problems(error, model=model, document=document)) from None


def _find(folder: str, sub: str, name: str, *, what: str) -> Path:
    where = f"{folder}/{sub}" if sub else folder
    if (found := project.find(where, name)) is not None:
        return found
    known = project.names(where)
    raise InputError(f"no {what} {quoted(name)} in {where}/ ({_there(known)}){nearest(name, known)}")


def _there(known: list[str]) -> str:
    return f"there are {', '.join(known)}" if known else "there are none"


def _size_path(study: Study, name: str) -> tuple[str | int, ...]:
    return ("sizes", study.sizes.index(name)) if study.sizes is not None else ("size",)


def _referred(
    document: Document,
    path: tuple[str | int, ...],
    sub: str,
    name: str | None,
    load: Callable[[str], Any],
    found: list[Problem],
    *,
    folder: str = "ablations",
) -> Any:
    """What a study refers to by name; a problem at the place of the name when there is no such thing."""
    if name is None:
        return None
    try:
        return load(name)
    except DeclarationError as error:
        found.extend(error.problems)
    except InputError as error:
        mark = document.mark(path)
        found.append(Problem(mark.file, mark.line, mark.column, ".".join(map(str, path)), str(error)))
    return None


def _without(document: Document, key: str) -> Document:
    return Document({name: value for name, value in document.data.items() if name != key}, document.marks)


def _assignment(text: str) -> tuple[str, Any]:
    check_readable(text, option="--set")
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise InputError(f"--set {text}: write it as path=value, for example --set depth=8")
    return path, parse_document(f"value: {value}", file=f"--set {text}").data["value"]
