"""Recurrent cells in the attention slot: torch's own, read out by one map.

The invariant: the state after the last token is all that is remembered, and the positions of a training step run in one
call of torch's kernel.

Legend: B batch, T tokens, D width, H units of the state, G gates.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from knockout.declare import parts as declared
from knockout.model.cache import StateCache
from knockout.model.documents import Documents
from knockout.model.linear import Linear
from knockout.model.mixer import TokenMixer


class _Cell(nn.RNNBase):
    """A cell whose weights are left to `initialise`, but for its maps of the state."""

    def reset_parameters(self) -> None:
        """Leave the weights alone: they are drawn by name, not in order of construction."""

    def first_value(self, name: str, *, generator: torch.Generator) -> Tensor | None:
        """Orthogonal maps of the state, one a gate, so that it neither fades nor explodes (Henaff et al. 2016)."""
        if name != "weight_hh_l0":
            return None
        size = self.hidden_size
        num_gates = self.get_parameter(name).shape[0] // size
        blocks = [torch.empty(size, size, dtype=torch.float64) for _ in range(num_gates)]
        return torch.cat([nn.init.orthogonal_(block, generator=generator) for block in blocks])


class RnnCell(_Cell, nn.RNN):
    """h = tanh(W x + U h + b) (Elman 1990)."""


class GruCell(_Cell, nn.GRU):
    """Reset and update gates (Cho et al. 2014)."""


class LstmCell(_Cell, nn.LSTM):
    """Input, forget and output gates; the forget gate starts open with a bias of 1 (Jozefowicz et al. 2015)."""

    def first_value(self, name: str, *, generator: torch.Generator) -> Tensor | None:
        """As in every cell, and the forget gate's bias."""
        if name != "bias_ih_l0":
            return super().first_value(name, generator=generator)
        bias_GH = torch.zeros(4, self.hidden_size)
        bias_GH[1] = 1.0  # torch's order of gates: input, forget, cell, output
        return bias_GH.flatten()


class RecurrentMixer(TokenMixer[StateCache]):
    """A cell over the tokens, then one map of its states."""

    def __init__(self, cell: RnnCell | GruCell | LstmCell, *, width: int, bias: bool) -> None:
        super().__init__()
        self.cell = cell
        self.output = Linear(cell.hidden_size, width, bias=bias)

    def forward(self, x_BTD: Tensor, *, cache: StateCache | None = None, documents: Documents | None = None) -> Tensor:
        """x_BTD to y_BTD, each from the state after its token."""
        start = None if cache is None else tuple(cache.tensors)
        if documents is None:
            state_BTH, last = self._run(x_BTD, start=start)
        else:
            state_BTH, last = self._run_documents(x_BTD, start=start, first_BT=documents.first_BT(x_BTD.shape[1]))
        if cache is not None:
            cache.advance(*last, num_tokens=x_BTD.shape[1])
        return self.output(state_BTH)

    def new_cache(self, batch: int, *, capacity: int, device: torch.device, dtype: torch.dtype) -> StateCache:
        """A state of zeros: one tensor [1, B, H], and for LSTM the cell's own beside it; `capacity` does not matter."""
        num_tensors = 2 if isinstance(self.cell, LstmCell) else 1
        zeros_1BH = torch.zeros(1, batch, self.cell.hidden_size, device=device, dtype=dtype)
        return StateCache(*[zeros_1BH] * num_tensors)

    def _run(self, x_BTD: Tensor, *, start: Sequence[Tensor] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The state after each token, and what the cell hands on after the last: one tensor [1, B, H] or LSTM's two."""
        state_BTH, last = self.cell(x_BTD, None if start is None else _as_state(start))
        return state_BTH, last if isinstance(last, tuple) else (last,)

    def _run_documents(
        self, x_BTD: Tensor, *, start: Sequence[Tensor] | None, first_BT: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """As `_run`, each document as a row of its own: torch's kernel cannot begin anew within one.

        The rows are packed by torch, so no step is spent on filling up the shorter ones.
        """
        begins_BT = first_BT.clone()
        begins_BT[:, 0] = True
        begin_R = begins_BT.flatten().nonzero().squeeze(1)
        size_R = begin_R.diff(append=begin_R.new_tensor([begins_BT.numel()]))
        rows = pad_sequence(list(x_BTD.flatten(0, 1).split(size_R.tolist())), batch_first=True)
        packed = pack_padded_sequence(rows, size_R.cpu(), batch_first=True, enforce_sorted=False)
        state, last = self.cell(packed, None if start is None else _as_state(_of_rows(start, begins_BT, first_BT)))
        state_RLH, _ = pad_packed_sequence(state, batch_first=True)
        filled_RL = torch.arange(state_RLH.shape[1], device=size_R.device) < size_R[:, None]
        last_row_B = begins_BT.sum(1).cumsum(0) - 1
        last = last if isinstance(last, tuple) else (last,)
        return state_RLH[filled_RL].unflatten(0, begins_BT.shape), tuple(tensor[:, last_row_B] for tensor in last)


def _of_rows(start: Sequence[Tensor], begins_BT: Tensor, first_BT: Tensor) -> tuple[Tensor, ...]:
    """States [1, B, H] as those of rows [1, R, H]: a window's own for a row that goes on with a document, else zeros."""
    window_R, place_R = begins_BT.nonzero(as_tuple=True)
    goes_on_R1 = ~first_BT[window_R, place_R].unsqueeze(1)
    return tuple(tensor[:, window_R] * goes_on_R1 for tensor in start)


def build_recurrent(mixer: declared.CellMixer, *, width: int, bias: bool) -> RecurrentMixer:
    """The declared cell over the network's width."""
    make = _cell_of(mixer)
    cell = make(width, declared.cell_width(mixer, width=width), bias=bias, batch_first=True)
    return RecurrentMixer(cell, width=width, bias=bias)


def _cell_of(mixer: declared.CellMixer) -> type[RnnCell] | type[GruCell] | type[LstmCell]:
    match mixer:
        case declared.LstmMixer():
            return LstmCell
        case declared.GruMixer():
            return GruCell
        case _:
            return RnnCell


def _as_state(tensors: Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """As torch's cells take it: the state alone, or LSTM's pair."""
    return tensors[0] if len(tensors) == 1 else tuple(tensors)
