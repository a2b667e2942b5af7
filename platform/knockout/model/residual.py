"""How a branch, its norm and the stream join.

The invariant: joining holds no parameters, so leaving the connection out changes no count.

Legend: B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from torch import Tensor

from knockout.declare import parts as declared
from knockout.declare.architecture import Architecture

Map = Callable[[Tensor], Tensor]
"""x_BTD -> y_BTD."""

Connect = Callable[[Tensor, Tensor], Tensor]
"""(x_BTD, branch_BTD) -> x_BTD."""


class Join(Protocol):
    """Runs one branch of a block on the stream."""

    def __call__(self, x_BTD: Tensor, *, branch: Map, norm: Map) -> Tensor:
        """x_BTD to x_BTD."""
        ...


def build_join(architecture: Architecture) -> Join:
    """Norm before the branch (pre, or none at all) or after the connection (post; Xiong et al. 2020)."""
    connect = build_residual(architecture)
    match architecture.norm:
        case declared.LayerNorm(placement="post") | declared.RmsNorm(placement="post"):
            return partial(_norm_last, connect=connect)
        case _:
            return partial(_norm_first, connect=connect)


def build_residual(architecture: Architecture) -> Connect:
    """What becomes of a branch's input once its output is there."""
    match architecture.residual:
        case declared.PlainResidual():
            return _add
        case declared.NoResidual():
            return _replace


def _norm_first(x_BTD: Tensor, *, branch: Map, norm: Map, connect: Connect) -> Tensor:
    return connect(x_BTD, branch(norm(x_BTD)))


def _norm_last(x_BTD: Tensor, *, branch: Map, norm: Map, connect: Connect) -> Tensor:
    return norm(connect(x_BTD, branch(x_BTD)))


def _add(x_BTD: Tensor, branch_BTD: Tensor) -> Tensor:
    return x_BTD + branch_BTD


def _replace(x_BTD: Tensor, branch_BTD: Tensor) -> Tensor:
    return branch_BTD
