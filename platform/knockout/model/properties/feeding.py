"""Properties of feed-forward parts.

Legend: B batch, T tokens, D width, F hidden width.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from knockout.declare.architecture import Architecture
from knockout.model.properties.finding import EXACT, Finding, block_of, difference, draw, network_of, same


def two_maps_are_one(architecture: Architecture) -> Finding:
    """Whether the part's two maps can be multiplied into one that does the same."""
    ffn, x_BTD = _part(architecture), _input_BTD(architecture)
    with torch.no_grad():
        combined_DD = ffn.down.weight @ ffn.up.weight
        constant_D = 0.0 if ffn.up.bias is None else ffn.down.weight @ ffn.up.bias + ffn.down.bias
        one_BTD, two_BTD = x_BTD @ combined_DD.T + constant_D, ffn(x_BTD)
    return same(
        one_BTD,
        two_BTD,
        equal=f"the product of the two maps, one of {combined_DD.shape[0]} × {combined_DD.shape[1]}, does what they do",
        unequal=f"with {architecture.ffn.kind} between them the two maps do what no product of theirs does",
    )


def feed_forward_is_local(architecture: Architecture) -> Finding:
    """Whether changing one token's input leaves the part's output at all others as it was."""
    ffn, x_BTD = _part(architecture), _input_BTD(architecture)
    place = architecture.context // 2
    changed_BTD = x_BTD.clone()
    changed_BTD[:, place] = -changed_BTD[:, place]
    with torch.no_grad():
        before_BTD, after_BTD = ffn(x_BTD), ffn(changed_BTD)
    others = [i for i in range(architecture.context) if i != place]
    there, elsewhere = (difference(after_BTD[:, i], before_BTD[:, i]) for i in ([place], others))
    detail = f"changing one token changes the output there by {there:.2f} of its size and elsewhere by {elsewhere:.1e}"
    return Finding(elsewhere <= EXACT < there, elsewhere, detail)


def swiglu_gates_with_either_factor(architecture: Architecture) -> Finding:
    """Whether (W1 x * SiLU(W2 x)) W3 is SwiGLU once the map under SiLU is taken for the paper's W (Shazeer 2020, eq. 6)."""
    ffn, x_BTD = _part(architecture), _input_BTD(architecture)
    return _as_swiglu(ffn, x_BTD, first=ffn.up, second=ffn.gate, words="with W2 as the paper's W and W1 as its V")


def swiglu_gates_with_the_second_map(architecture: Architecture) -> Finding:
    """Whether it is SwiGLU with W1 as the paper's W and W2 as its V, in the order in which both write them."""
    ffn, x_BTD = _part(architecture), _input_BTD(architecture)
    return _as_swiglu(ffn, x_BTD, first=ffn.gate, second=ffn.up, words="with W1 as the paper's W and W2 as its V")


def memory_of_columns_and_rows(architecture: Architecture) -> Finding:
    """Whether σ(x W1) W2 is the sum of σ(x · column i of W1) times row i of W2 (Geva et al. 2021, section 2)."""
    ffn, x_BTD = _part(architecture), _input_BTD(architecture)
    with torch.no_grad():
        first_DF, second_FD = ffn.up.weight.T, ffn.down.weight.T
        total_BTD = torch.zeros_like(x_BTD)
        for i in range(first_DF.shape[1]):
            match_BT = ffn.activation(x_BTD @ first_DF[:, i])
            total_BTD += match_BT.unsqueeze(-1) * second_FD[i]
        found_BTD = ffn(x_BTD)
    return same(
        found_BTD,
        total_BTD,
        equal=f"the part is the sum of {first_DF.shape[1]} rows of W2, each times how well x matches its column of W1",
        unequal="the part is not a sum of rows of W2 weighted by matches with columns of W1",
    )


def memory_of_columns_and_rows_from_the_left(architecture: Architecture) -> Finding:
    """Whether columns of W1 are keys when the part is written W2 σ(W1 x), with the maps on the left."""
    ffn, x_BTD = _part(architecture), _input_BTD(architecture)
    first_FD = ffn.up.weight.detach()
    column, width = first_FD.shape
    if column != width:
        detail = f"written W2 σ(W1 x), a column of W1 has {column} units and x has {width}: its rows are the keys"
        return Finding(False, float(column), detail)
    matches_BTF = ffn.activation(x_BTD @ first_FD)
    read_BTD = matches_BTF @ ffn.down.weight.detach()
    return same(
        read_BTD,
        ffn(x_BTD).detach(),
        equal="columns of W1 and rows of W2 give the part",
        unequal="columns of W1 and rows of W2 do not give the part: with the maps on the left, rows of W1 are the keys",
    )


def _as_swiglu(ffn: Any, x_BTD: Tensor, *, first: Any, second: Any, words: str) -> Finding:
    with torch.no_grad():
        printed_BTD = ffn.down(first(x_BTD) * F.silu(second(x_BTD)))
        paper_BTD = ffn.down(F.silu(ffn.gate(x_BTD)) * ffn.up(x_BTD))
    return same(
        printed_BTD,
        paper_BTD,
        equal=f"{words}, the printed formula is the paper's: a product does not mind its order",
        unequal=f"{words}, the printed formula is another function: SiLU is on the other factor",
    )


def _part(architecture: Architecture) -> Any:
    return block_of(network_of(architecture)).ffn


def _input_BTD(architecture: Architecture) -> Tensor:
    return draw(2, architecture.context, architecture.width, name="x")
