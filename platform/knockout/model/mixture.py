"""A mixture of experts: a router picks some experts for every token, and none is ever dropped.

The invariant: the output is that of each token going through its experts alone, whatever the load.
Assignments are put into one row of slots an expert, padded to the largest load, and all experts run in one
batched product.

Legend: B batch, T tokens, N = B * T tokens, C choices a token (top_k), A = N * C assignments, E experts, R
slots an expert, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from knockout.declare import parts as declared
from knockout.model.balance import Balance
from knockout.model.dense import FeedForward
from knockout.model.linear import Linear

LEAST_SUM = 1e-20
"""Sigmoid scores can all be 0 in float32; their sum is taken to be at least this, as in DeepSeek-V3's own code."""


@dataclass(frozen=True)
class Routing:
    """What the router did in some forward passes: how many assignments each expert got."""

    count_E: Tensor

    def __add__(self, other: Routing) -> Routing:
        """What it did in the passes of both."""
        return Routing(self.count_E + other.count_E)

    @property
    def load_E(self) -> Tensor:
        """The share of all assignments that each expert got: f of Fedus et al. 2022, equation 5, for one choice."""
        return self.count_E / self.count_E.sum()

    @property
    def entropy(self) -> Tensor:
        """Shannon's entropy of the load in nats: log(experts) when even, 0 when one expert does everything."""
        return torch.special.entr(self.load_E).sum()

    @property
    def load_max(self) -> Tensor:
        """Load of the busiest expert over the mean one: 1 when even, the number of experts when one does everything.

        max(Load) / mean(Load) of Shazeer et al. 2017, appendix A, table 6.
        """
        return self.count_E.shape[0] * self.load_E.max()


class Router(Linear):
    """A score for every expert, and the gates of those that are chosen.

    Gates are the scores as they are for one choice, so that the router learns from the loss (Fedus et al. 2021,
    equation 2), and divided by their sum for several (Lepikhin et al. 2020, algorithm 1), then scaled.
    """

    def __init__(self, width: int, *, num_experts: int, top_k: int, routing: declared.Routing) -> None:
        super().__init__(width, num_experts, bias=False)
        self.num_experts, self.top_k, self.routing = num_experts, top_k, routing

    def scores(self, x_ND: Tensor) -> Tensor:
        """x_ND to score_NE in float32 or wider, each in (0, 1)."""
        logits_NE = self(x_ND)
        logits_NE = logits_NE.to(torch.promote_types(logits_NE.dtype, torch.float32))
        match self.routing:
            case declared.SoftmaxRouting():
                return logits_NE.softmax(-1)
            case declared.SigmoidRouting():
                return logits_NE.sigmoid()

    def gates(self, score_NE: Tensor, *, expert_NC: Tensor) -> Tensor:
        """gate_NC of the chosen experts."""
        gate_NC = score_NE.gather(1, expert_NC)
        if self.top_k > 1:
            gate_NC = gate_NC / gate_NC.sum(-1, keepdim=True).clamp_min(LEAST_SUM)
        return gate_NC * self.routing.scale


class MixtureOfExperts(FeedForward):
    """sum over the chosen experts of gate * expert(x) (Shazeer et al. 2017, equation 1), plus the shared ones'.

    `shared` is one dense part as wide as all shared experts together, which is their sum (Dai et al. 2024,
    "DeepSeekMoE", equation 9); its last map has one bias and not one an expert.
    """

    def __init__(self, *, router: Router, experts: FeedForward, shared: FeedForward | None, balance: Balance) -> None:
        super().__init__()
        self.router, self.experts, self.shared, self.balance = router, experts, shared, balance
        self.routing: Routing | None = None
        self.total: Callable[[Tensor], Tensor] = as_counted
        self._auxiliary_loss: Tensor | None = None

    def forward(self, x_BTD: Tensor) -> Tensor:
        """x_BTD to y_BTD; leaves the balance loss for `take_auxiliary_loss` and the load in `routing`."""
        x_ND = x_BTD.flatten(0, -2)
        score_NE = self.router.scores(x_ND)
        expert_NC = self.balance(score_NE).topk(self.router.top_k, dim=-1).indices
        count_E = count_assignments(expert_NC, num_experts=self.router.num_experts)
        self._note(score_NE, count_E)
        gate_NC = self.router.gates(score_NE, expert_NC=expert_NC)
        y_NCD = self._apply_experts(x_ND, expert_NC, count_E)
        y_ND = (gate_NC.unsqueeze(-1) * y_NCD).sum(1).to(x_BTD.dtype)
        if self.shared is not None:
            y_ND = y_ND + self.shared(x_ND)
        return y_ND.view_as(x_BTD)

    def take_auxiliary_loss(self) -> Tensor | None:
        """The weighted balance loss of the last forward pass, once."""
        loss, self._auxiliary_loss = self._auxiliary_loss, None
        return loss

    def _note(self, score_NE: Tensor, count_E: Tensor) -> None:
        if self.training:
            count_E = self.total(count_E)
        self.routing = Routing(count_E)
        self._auxiliary_loss = self.balance.loss(score_NE, load_E=self.routing.load_E)
        if self.training:
            self.balance.observe(count_E)

    def _apply_experts(self, x_ND: Tensor, expert_NC: Tensor, count_E: Tensor) -> Tensor:
        num_experts, num_slots = self.router.num_experts, _slots_per_expert(count_E, num_assignments=expert_NC.numel())
        slot_A = assign_slots(expert_NC.flatten(), count_E=count_E, num_slots=num_slots)
        x_AD = x_ND.repeat_interleave(self.router.top_k, dim=0)
        padded_SD = x_AD.new_zeros(num_experts * num_slots, x_AD.shape[-1]).index_copy(0, slot_A, x_AD)
        y_ERD = self.experts(padded_SD.unflatten(0, (num_experts, num_slots)))
        return y_ERD.flatten(0, 1).index_select(0, slot_A).unflatten(0, expert_NC.shape)


def as_counted(count_E: Tensor) -> Tensor:
    """The counts of a network that sees all tokens of a step itself."""
    return count_E


def count_over(network: nn.Module, *, total: Callable[[Tensor], Tensor]) -> None:
    """Have every mixture take as its load in training what `total` makes of its own counts: their sum over all ranks.

    The balance loss is then E * sum of (load over all ranks' tokens) * (mean share over this rank's), whose mean over
    ranks is that of one process.
    """
    for module in network.modules():
        if isinstance(module, MixtureOfExperts):
            module.total = total


def count_assignments(expert_NC: Tensor, *, num_experts: int) -> Tensor:
    """How many assignments each expert got, count_E."""
    expert_A = expert_NC.flatten()
    return expert_A.new_zeros(num_experts).scatter_add(0, expert_A, torch.ones_like(expert_A))


def assign_slots(expert_A: Tensor, *, count_E: Tensor, num_slots: int) -> Tensor:
    """A slot of its own for every assignment: expert * num_slots + its rank within the expert."""
    sorted_A, order_A = expert_A.sort(stable=True)
    start_E = count_E.cumsum(0) - count_E
    rank_A = torch.arange(expert_A.numel(), device=expert_A.device) - start_E[sorted_A]
    return torch.empty_like(expert_A).scatter(0, order_A, sorted_A * num_slots + rank_A)


def _slots_per_expert(count_E: Tensor, *, num_assignments: int) -> int:
    # A meta tensor has no loads; an even one makes its shapes those of the active computation.
    if count_E.is_meta:
        return -(-num_assignments // count_E.shape[0])
    return int(count_E.max())
