"""How a block puts its branches, norms and the stream together, against the sums written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from knockout.declare.architecture import Architecture
from knockout.model.block import build_block
from knockout.model.head_position import HeadPosition

Declare = Callable[..., Architecture]
POST = {"kind": "layer", "placement": "post"}


def filled_block(architecture: Architecture) -> Any:
    block = build_block(architecture, position=HeadPosition())
    generator = torch.Generator().manual_seed(31)
    for parameter in block.parameters():
        nn.init.normal_(parameter, generator=generator)
    return block.double()


@pytest.fixture
def x_BTD() -> Tensor:
    return torch.randn(2, 6, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(32))


def test_pre_norm_comes_before_each_branch(declare: Declare, x_BTD: Tensor) -> None:
    block = filled_block(declare())
    middle_BTD = x_BTD + block.attention(block.attention_norm(x_BTD))
    assert torch.allclose(block(x_BTD), middle_BTD + block.ffn(block.ffn_norm(middle_BTD)))


def test_post_norm_comes_after_each_addition(declare: Declare, x_BTD: Tensor) -> None:
    block = filled_block(declare(norm=POST))
    middle_BTD = block.attention_norm(x_BTD + block.attention(x_BTD))
    assert torch.allclose(block(x_BTD), block.ffn_norm(middle_BTD + block.ffn(middle_BTD)))


def test_without_residuals_each_branch_replaces_its_input(declare: Declare, x_BTD: Tensor) -> None:
    pre, post = (filled_block(declare(residual={"kind": "none"}, **norm)) for norm in ({}, {"norm": POST}))
    assert torch.allclose(pre(x_BTD), pre.ffn(pre.ffn_norm(pre.attention(pre.attention_norm(x_BTD)))))
    assert torch.allclose(post(x_BTD), post.ffn_norm(post.ffn(post.attention_norm(post.attention(x_BTD)))))


def test_an_absent_branch_takes_its_norm_with_it(declare: Declare, x_BTD: Tensor) -> None:
    blind = filled_block(declare(attention={"kind": "none"}))
    assert torch.allclose(blind(x_BTD), x_BTD + blind.ffn(blind.ffn_norm(x_BTD)))
    assert all(name.startswith("ffn") for name in blind.state_dict())
    thin = filled_block(declare(ffn={"kind": "none"}))
    assert torch.allclose(thin(x_BTD), x_BTD + thin.attention(thin.attention_norm(x_BTD)))
    assert all(name.startswith("attention") for name in thin.state_dict())


def test_a_block_without_any_branch_passes_its_input_on(declare: Declare, x_BTD: Tensor) -> None:
    block = filled_block(declare(attention={"kind": "none"}, ffn={"kind": "none"}))
    assert torch.equal(block(x_BTD), x_BTD)
