"""Architectures and recipes that cannot stand together: what is said, and where."""

from __future__ import annotations

from typing import Any

import pytest

from knockout.declare.document import Document, parse_document
from knockout.declare.parts import NextTokenObjective
from knockout.declare.recipe import ContiguousPacking, DocumentPacking
from knockout.declare.settings import defaults
from knockout.errors import DeclarationError

DIMENSIONS: dict[str, Any] = {
    "width": 16, "depth": 2, "heads": 2, "context": 16, "vocabulary": 32, "batch": 4, "tokens": 6400, "learning_rate": 0.01,
}  # fmt: skip
DOCUMENTS = {"packing": {"kind": "documents"}}
ENCODER = {"attention": {"causal": False}, "objective": {"kind": "masked"}, "skeleton": {"kind": "encoder"}}


def problems_of(changes: dict[str, Any]) -> list[str]:
    try:
        defaults().over(Document({**DIMENSIONS, **changes}, {})).resolve()
    except DeclarationError as error:
        return [f"{problem.path}: {problem.message}" for problem in error.problems]
    return []


def test_windows_run_on_across_documents_unless_it_is_declared_otherwise() -> None:
    settings = defaults().over(Document(DIMENSIONS, {}))
    assert settings.resolve()[1].packing == ContiguousPacking()
    architecture, recipe = settings.over(Document(DOCUMENTS, {})).resolve()
    assert (recipe.packing, architecture.objective) == (DocumentPacking(), NextTokenObjective())


@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [
        (ENCODER, "objective.kind", "a hidden end-of-text would show by what its neighbours may read"),
        ({"objective": {"kind": "prefix"}}, "objective.kind", "a window has one prefix"),
        (
            {"objective": {"kind": "prefix"}, "skeleton": {"kind": "encoder_decoder", "encoder_depth": 1}},
            "objective.kind",
            "only its first document would have one",
        ),
        (
            {"attention": {"kind": "linear", "causal": False}},
            "attention.causal",
            "linear attention without a mask sums over the whole window",
        ),
        (
            {"pattern": [{"attention": {"kind": "linear", "causal": False}}]},
            "pattern.0.attention.causal",
            "linear attention without a mask sums over the whole window",
        ),
    ],
    ids=str,
)
def test_what_cannot_read_documents_by_themselves_is_refused(changes: dict[str, Any], path: str, reason: str) -> None:
    assert problems_of(changes) == []
    (problem,) = problems_of({**changes, **DOCUMENTS})
    assert problem.startswith(f"{path}: ")
    assert reason in problem
    assert "packing {kind: contiguous}" in problem


def test_an_attention_that_no_layer_has_may_be_of_any_kind() -> None:
    unused = {"attention": {"kind": "linear", "causal": False}, "pattern": [{"attention": {"kind": "multi_head"}}]}
    assert problems_of({**unused, **DOCUMENTS}) == []


@pytest.mark.parametrize("packing", [{"kind": "document"}, {"kind": "documents", "positions": "kept"}, "documents"], ids=str)
def test_another_packing_is_refused(packing: object) -> None:
    (problem,) = problems_of({"packing": packing})
    assert problem.startswith("packing")


def test_a_warm_up_may_take_the_whole_run_and_no_more() -> None:
    assert problems_of({"warmup_steps": 100}) == []
    (problem,) = problems_of({"warmup_steps": 101})
    assert problem == (
        "warmup_steps: the warm-up of 101 steps is longer than the run of 100 steps (6400 tokens at batch 4 × context 16), "
        "whose learning rate never reaches its peak; set warmup_steps to at most 100, or give it more tokens"
    )


def test_the_problem_is_told_where_the_setting_was_written() -> None:
    written = parse_document("packing: {kind: documents}\nobjective: {kind: prefix}\n", file="here.yaml")
    with pytest.raises(DeclarationError, match=r"here\.yaml:2"):
        defaults().over(Document(DIMENSIONS, {})).over(written).resolve()
