"""A claim's declaration: the key `is`, the closed union, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from knockout.declare.claim import Claim, Compared, Competence, Decide, Diverges, Equivalent


def claim(**expect: Any) -> Claim:
    return Claim.model_validate_json(json.dumps({"id": "T6.4-peek", "says": "It peeks", "expect": expect}))


def test_worse_is_compared_with_the_baseline_by_default() -> None:
    expect = claim(**{"variant": "no-mask", "is": "worse", "by": 1}).expect
    assert isinstance(expect, Compared)
    assert (expect.relation, expect.than, expect.by, expect.metric) == ("worse", "baseline", 1.0, None)


def test_equivalent_takes_to_or_than_but_not_both() -> None:
    for key in ("to", "than"):
        expect = claim(**{"variant": "rms", "is": "equivalent", key: "layer"}).expect
        assert isinstance(expect, Equivalent)
        assert expect.than == "layer"
    with pytest.raises(ValidationError, match="Extra inputs"):
        claim(**{"variant": "rms", "is": "equivalent", "to": "layer", "than": "layer"})


@pytest.mark.parametrize("relation", ["worse", "better", "equivalent", "diverges", "causal", "not_causal"])
def test_every_relation_is_written_back_under_the_key_that_it_was_read_from(relation: str) -> None:
    made = claim(**{"variant": "v", "is": relation})
    dumped = made.model_dump()
    assert dumped["expect"]["is"] == relation
    assert Claim.model_validate(dumped) == made
    assert Claim.model_validate_json(made.model_dump_json()) == made


def test_the_key_is_is_required_and_its_python_name_is_not_accepted() -> None:
    with pytest.raises(ValidationError):
        claim(variant="v", relation="worse")
    assert Diverges.model_validate({"variant": "v", "is": "diverges"}).relation == "diverges"


@pytest.mark.parametrize(
    "expect",
    [
        {"variant": "v", "is": "nicer"},
        {"variant": "v"},
        {"variant": "v", "is": "diverges", "than": "baseline"},
        {"variant": "v", "is": "worse", "by": -0.1},
        {"variant": "v", "is": "worse", "by": float("nan")},
        {"variant": "v", "is": "worse", "metric": "accuracy"},
        {"variant": "v", "is": "equivalent", "margin": 0.0},
        {"variant": "Not A Name", "is": "worse"},
    ],
)
def test_an_impossible_expectation_is_refused(expect: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        claim(**expect)


def test_a_variant_is_not_compared_with_itself() -> None:
    for relation in ("worse", "equivalent"):
        with pytest.raises(ValidationError, match="cannot be compared with itself"):
            claim(**{"variant": "baseline", "is": relation})


def test_the_editors_schema_knows_the_written_keys() -> None:
    schema = Claim.model_json_schema()
    assert schema["$defs"]["Compared"]["required"] == ["variant", "is"]
    assert {"to", "than"} <= set(schema["$defs"]["Equivalent"]["properties"])
    assert all(not made["additionalProperties"] for made in schema["$defs"].values())


def test_the_defaults_are_those_of_the_method() -> None:
    assert Decide().model_dump() == {"metric": "val_loss", "margin": 0.02, "alpha": 0.05}
    assert Competence().model_dump() == {"floor": "bigram", "by": 0.1}
