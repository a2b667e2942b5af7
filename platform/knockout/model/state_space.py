"""Mamba's selective state space in the attention slot.

The invariant: the recurrence runs in float32 or better whatever the network's dtype, and never position by position.

Legend: B batch, T tokens, D width, E inner units, N numbers of state a unit, R rank of the step sizes, K tokens that the
convolution sees.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from knockout.declare import parts as declared
from knockout.model.cache import StateCache
from knockout.model.documents import Documents
from knockout.model.linear import Linear
from knockout.model.mixer import TokenMixer
from knockout.model.precision import exact_products
from knockout.model.scan import linear_recurrence

SMALLEST_STEP, LARGEST_STEP = 0.001, 0.1
"""Between them the steps lie before training, evenly on a logarithmic scale (Gu & Dao 2023, section 3.6)."""

CHUNK = 32
"""Positions that are scanned at once: their states stay in a core's cache (half the time of 128 at width 64)."""


class ShortConvolution(nn.Module):
    """Every unit's newest K tokens, weighted: y_t = sum over k of w_k x_(t-K+1+k), plus a bias."""

    def __init__(self, num_units: int, *, size: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_units, 1, size))
        self.bias = nn.Parameter(torch.empty(num_units)) if bias else None

    def forward(self, x_BTE: Tensor, *, before_BKE: Tensor, documents: Documents | None = None) -> Tensor:
        """x_BTE to y_BTE; `before_BKE` holds the K - 1 tokens before the first.

        With documents, the tokens of others are taken as zeros.
        """
        x_BSE = torch.cat((before_BKE, x_BTE), dim=1)
        if documents is not None:
            return self._of_documents(x_BSE, position_BT=documents.positions_BT(x_BTE.shape[1]))
        x_BET = x_BSE.transpose(1, 2)
        return F.conv1d(x_BET, self.weight, self.bias, groups=x_BET.shape[1]).transpose(1, 2)

    def _of_documents(self, x_BSE: Tensor, *, position_BT: Tensor) -> Tensor:
        """The newest token and, one after another, those before it that a token's document has."""
        size, num_tokens = self.weight.shape[-1], position_BT.shape[1]
        weight_EK = self.weight.squeeze(1)
        y_BTE = x_BSE[:, size - 1 :] * weight_EK[:, -1]
        for back in range(1, size):
            reached_BT1 = (position_BT >= back).unsqueeze(-1)
            y_BTE = y_BTE + x_BSE[:, size - 1 - back :][:, :num_tokens] * reached_BT1 * weight_EK[:, -1 - back]
        return y_BTE if self.bias is None else y_BTE + self.bias

    def first_value(self, name: str, *, generator: torch.Generator) -> Tensor | None:
        """Uniform weights within 1/sqrt(K), as torch's convolutions have them."""
        if name != "weight":
            return None
        bound = self.weight.shape[-1] ** -0.5
        return torch.empty(self.weight.shape).uniform_(-bound, bound, generator=generator)


class StepSize(Linear):
    """softplus(r W + b): the step of every inner unit, over 0."""

    def forward(self, input: Tensor) -> Tensor:
        """Ranks [..., R] to steps [..., E], in float32 at least."""
        step = super().forward(input)
        return F.softplus(step.to(torch.promote_types(step.dtype, torch.float32)))

    def first_value(self, name: str, *, generator: torch.Generator) -> Tensor:
        """Weights uniform within R^(-1/2), and the bias such that a step is log-uniform between two ends."""
        if name == "weight":
            bound = self.in_features**-0.5
            return torch.empty(self.weight.shape).uniform_(-bound, bound, generator=generator)
        low, high = math.log(SMALLEST_STEP), math.log(LARGEST_STEP)
        step_E = torch.empty(self.out_features).uniform_(low, high, generator=generator).exp()
        return step_E + torch.log(-torch.expm1(-step_E))  # the inverse of softplus


class SelectiveSsm(TokenMixer[StateCache]):
    """h_t = exp(step_t A) h_(t-1) + step_t B_t x_t, y_t = C_t h_t + skip x_t, gated (Gu & Dao 2023, algorithm 2).

    A is negative and diagonal and steps B, C come from the token; A is discretised exactly and B by Euler's rule, as
    in the paper's own code.
    """

    def __init__(self, mixer: declared.SelectiveSsmMixer, *, width: int, bias: bool) -> None:
        super().__init__()
        inner, rank = mixer.expansion * width, declared.step_rank(mixer, width=width)
        self.rank, self.num_states = rank, mixer.state
        self.input = Linear(width, 2 * inner, bias=bias)
        self.convolution = ShortConvolution(inner, size=mixer.convolution, bias=bias)
        self.selection = Linear(inner, rank + 2 * mixer.state, bias=False)
        self.step = StepSize(rank, inner)
        self.log_rate = nn.Parameter(torch.empty(inner, mixer.state))
        self.skip = nn.Parameter(torch.empty(inner))
        self.output = Linear(inner, width, bias=bias)

    def forward(self, x_BTD: Tensor, *, cache: StateCache | None = None, documents: Documents | None = None) -> Tensor:
        """x_BTD to y_BTD."""
        inner_BTE, gate_BTE = self.input(x_BTD).chunk(2, dim=-1)
        before_BKE, start_BEN = self._start(inner_BTE) if cache is None else cache.tensors
        before_BKE = before_BKE.to(inner_BTE.dtype)
        seen_BTE = F.silu(self.convolution(inner_BTE, before_BKE=before_BKE, documents=documents))
        first_BT = None if documents is None else documents.first_BT(x_BTD.shape[1])
        read_BTE, last_BEN = self._read(seen_BTE, start_BEN=start_BEN, first_BT=first_BT)
        if cache is not None:
            kept = before_BKE.shape[1]
            newest_BKE = torch.cat((before_BKE, inner_BTE), dim=1)[:, -kept:] if kept else before_BKE
            cache.advance(newest_BKE, last_BEN, num_tokens=x_BTD.shape[1])
        return self.output(read_BTE.to(gate_BTE.dtype) * F.silu(gate_BTE))

    def new_cache(self, batch: int, *, capacity: int, device: torch.device, dtype: torch.dtype) -> StateCache:
        """The convolution's last K - 1 inputs and the state (float32 at least), zeros; `capacity` does not matter."""
        like = torch.empty(batch, 0, self.skip.shape[0], device=device, dtype=dtype)
        return StateCache(*self._start(like))

    def first_value(self, name: str, *, generator: torch.Generator) -> Tensor:
        """A = -1 ... -N in every unit (S4D-Real, Gu et al. 2022), and a skip of 1."""
        if name == "skip":
            return torch.ones(self.skip.shape)
        return torch.arange(1, self.num_states + 1).log().expand(self.log_rate.shape)

    def _start(self, like_BTE: Tensor) -> tuple[Tensor, Tensor]:
        batch, _, inner = like_BTE.shape
        before_BKE = like_BTE.new_zeros(batch, self.convolution.weight.shape[-1] - 1, inner)
        dtype = torch.promote_types(like_BTE.dtype, torch.float32)
        return before_BKE, like_BTE.new_zeros(batch, inner, self.num_states, dtype=dtype)

    def _read(self, x_BTE: Tensor, *, start_BEN: Tensor, first_BT: Tensor | None) -> tuple[Tensor, Tensor]:
        """y_BTE of the recurrence, and the state after the last token."""
        selection = self.selection(x_BTE)
        rank_BTR, into_BTN, out_BTN = selection.split((self.rank, self.num_states, self.num_states), dim=-1)
        step_BTE = self.step(rank_BTR)
        exact = step_BTE.dtype
        streams = (step_BTE, x_BTE.to(exact), into_BTN.to(exact), out_BTN.to(exact))
        rate_EN = -self.log_rate.to(exact).exp()
        with exact_products(x_BTE.device):
            start_BEN = start_BEN.to(exact)
            read_BTE, last_BEN = selective_scan(*streams, rate_EN=rate_EN, start_BEN=start_BEN, first_BT=first_BT)
        return read_BTE + self.skip.to(exact) * streams[1], last_BEN


def selective_scan(
    step_BTE: Tensor,
    x_BTE: Tensor,
    into_BTN: Tensor,
    out_BTN: Tensor,
    *,
    rate_EN: Tensor,
    start_BEN: Tensor,
    chunk: int = CHUNK,
    first_BT: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """What each token reads, read_BTE, and the state after the last (Gu & Dao 2023, equation 2a and table 1).

    The positions of a chunk are scanned at once, and the state goes from chunk to chunk. No value depends on the chunk's
    length. What lies within is computed anew for the gradients (section 3.3.2): only states between chunks are kept.
    Where first_BT is true, a document begins, and the state is 0 before it.
    """
    state_BEN, reads = start_BEN, []
    streams = [stream.split(chunk, dim=1) for stream in (step_BTE, x_BTE, into_BTN, out_BTN)]
    firsts = [None] * len(streams[0]) if first_BT is None else first_BT.split(chunk, dim=1)
    for *pieces, first_BC in zip(*streams, firsts, strict=True):
        read_BCE, state_BEN = checkpoint(
            _scan_chunk,
            *pieces,
            first_BC,
            rate_EN,
            state_BEN,
            use_reentrant=False,
            preserve_rng_state=False,
            determinism_check="none",
        )
        reads.append(read_BCE)
    return torch.cat(reads, dim=1), state_BEN


def _scan_chunk(
    step_BCE: Tensor,
    x_BCE: Tensor,
    into_BCN: Tensor,
    out_BCN: Tensor,
    first_BC: Tensor | None,
    rate_EN: Tensor,
    start_BEN: Tensor,
) -> tuple[Tensor, Tensor]:
    decay_BCEN = torch.exp(step_BCE.unsqueeze(-1) * rate_EN)
    if first_BC is not None:
        decay_BCEN = decay_BCEN.masked_fill(first_BC[:, :, None, None], 0.0)
    added_BCEN = (step_BCE * x_BCE).unsqueeze(-1) * into_BCN.unsqueeze(-2)
    state_BCEN = linear_recurrence(decay_BCEN, added_BCEN, start_B=start_BEN)
    return torch.matmul(state_BCEN, out_BCN.unsqueeze(-1)).squeeze(-1), state_BCEN[:, -1]
