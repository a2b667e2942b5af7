"""Kinds of the slot `attention` that carry a state from token to token instead of looking back at all of them.

The invariant: every kind is causal, and its state has the same size after one token as after a million.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from knockout.declare.base import Declaration, Positive


class CellMixer(Declaration):
    """A recurrent cell of `hidden` units read out by one map."""

    causal: ClassVar[bool] = True
    gates: ClassVar[int] = 1
    """Maps of the input and of the state that one step of the cell computes."""
    state_tensors: ClassVar[int] = 1
    """Tensors of `hidden` units that one step hands to the next."""
    hidden: Positive | None = None
    """Units of the state; by default the width."""


class RnnMixer(CellMixer):
    """h = tanh(W x + U h) (Elman 1990)."""

    kind: Literal["rnn"] = "rnn"


class LstmMixer(CellMixer):
    """A cell with input, forget and output gates (Hochreiter & Schmidhuber 1997; Gers et al. 2000)."""

    kind: Literal["lstm"] = "lstm"
    gates: ClassVar[int] = 4
    state_tensors: ClassVar[int] = 2


class GruMixer(CellMixer):
    """A cell with reset and update gates (Cho et al. 2014), the reset applied after U h as in cuDNN."""

    kind: Literal["gru"] = "gru"
    gates: ClassVar[int] = 3


class SelectiveSsmMixer(Declaration):
    """Mamba's layer: short convolution, a diagonal state space whose step, input and output maps depend on the
    token, and a gate (Gu & Dao 2023, algorithm 2 and figure 3)."""

    kind: Literal["selective_ssm"] = "selective_ssm"
    causal: ClassVar[bool] = True
    expansion: Positive = 2
    """Inner width over width, 1 or more."""
    state: Positive = 16
    """Numbers of state an inner unit."""
    convolution: Positive = 4
    """Tokens that the convolution sees, the newest included."""
    step_rank: Positive | None = None
    """Rank of the map to the step sizes; by default width / 16, rounded up."""


class RetentionMixer(Declaration):
    """Retention: a state of key-value products that fades by a fixed rate a head, normed and gated (Sun et al. 2023,
    equations 5 - 8); `heads` divides the width, and rotary positions turn its queries and keys."""

    kind: Literal["retention"] = "retention"
    causal: ClassVar[bool] = True
    value_expansion: Positive = 1
    """Width of a head's values over that of its keys, 1 or more; 2 in the paper's models."""
    chunk: ClassVar[int] = 64
    """Tokens whose products are formed at once; between chunks the state is carried. No value depends on it."""


RecurrentMixer = RnnMixer | LstmMixer | GruMixer | SelectiveSsmMixer | RetentionMixer


def cell_width(mixer: CellMixer, *, width: int) -> int:
    """Units of a cell's state in a network of this width."""
    return width if mixer.hidden is None else mixer.hidden


def step_rank(mixer: SelectiveSsmMixer, *, width: int) -> int:
    """Rank of the map to the step sizes in a network of this width (Gu & Dao 2023, section 3.6)."""
    return math.ceil(width / 16) if mixer.step_rank is None else mixer.step_rank
