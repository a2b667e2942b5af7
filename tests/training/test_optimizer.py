"""Which parameters share weight decay and learning rate."""

from __future__ import annotations

import json
from typing import Any

import torch

from knockout.declare.architecture import Architecture
from knockout.declare.document import Document
from knockout.declare.settings import defaults
from knockout.model import build
from knockout.training.module import build_optimizer
from knockout.training.result import read_result

SETTINGS: dict[str, Any] = {
    "width": 16, "heads": 2, "depth": 2, "context": 8, "vocabulary": 11, "batch": 4, "tokens": 640, "learning_rate": 0.5,
}  # fmt: skip
MUP: dict[str, Any] = {"init": {"kind": "mup", "base_width": 8}}


def groups_of(**changes: Any) -> tuple[Architecture, list[dict[str, Any]]]:
    architecture, recipe = defaults().over(Document({**SETTINGS, **changes}, {})).resolve()
    network = build(architecture, seed=0)
    optimizer = build_optimizer(network, architecture=architecture, recipe=recipe, device=torch.device("cpu"))
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert {id(parameter) for parameter in held} == {id(p) for p in network.parameters() if p.requires_grad}
    assert len({id(parameter) for parameter in held}) == len(held)
    return architecture, optimizer.param_groups


def test_maps_and_tables_decay_and_vectors_do_not_all_at_one_rate() -> None:
    _, (decaying, still) = groups_of()
    assert {parameter.ndim for parameter in decaying["params"]} == {2}
    assert {parameter.ndim for parameter in still["params"]} == {1}
    assert (decaying["weight_decay"] > 0, still["weight_decay"]) == (True, 0.0)
    assert decaying["lr"] == still["lr"] == 0.5


def test_mups_maps_have_a_group_with_the_rate_of_their_width() -> None:
    _, groups = groups_of(**MUP)
    assert sorted((group["lr"], group["rate_factor"], len(group["params"])) for group in groups) == [
        (0.25, 0.5, 2 * 6),  # four maps of attention and two of the feed-forward part, in two blocks
        (0.5, 1.0, 2),  # tokens and positions
        (0.5, 1.0, 2 * 10 + 2),  # six biases and four of norms a block, and the last norm
    ]


def test_a_run_of_many_groups_trains_to_its_end(laboratory: Any, tmp_path: Any) -> None:
    mixed = {"pattern": [{"attention": {"kind": "selective_ssm"}}, {}], "residual": {"kind": "rezero"}}
    run = laboratory.declare(tmp_path, **MUP, **mixed)
    assert laboratory.train(run) == 0
    result = read_result(run.folder)
    assert result is not None, json.dumps(run.meaning)
    assert result["outcome"] == "done"
