"""A mixture of experts: a router picks `top_k` experts for every token, and none is ever dropped.

The invariant: the output is that of each token going through its experts alone, whatever the load.
Assignments are put into one row of slots an expert, padded to the largest load, and all experts run in one
batched product.

Legend: B batch, T tokens, N = B * T tokens, C choices a token (top_k), A = N * C assignments, E experts, R
slots an expert, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from knockout.model.dense import FeedForward
from knockout.model.linear import Linear


@dataclass(frozen=True)
class Routing:
    """What the router did in one forward pass: the share of all assignments that each expert got."""

    load_E: Tensor

    @property
    def entropy(self) -> Tensor:
        """Entropy of the load in nats: log(experts) when even, 0 when one expert does everything."""
        return torch.special.entr(self.load_E).sum()


class MixtureOfExperts(FeedForward):
    """sum over the chosen experts of gate * expert(x) (Shazeer et al. 2017, equation 1).

    Gates are the router's softmax probabilities: as they are for one choice, so that the router learns from
    the loss (Fedus et al. 2021, equation 2), and divided by their sum for several (Lepikhin et al. 2020,
    algorithm 1).
    """

    def __init__(self, *, router: Linear, experts: FeedForward, num_experts: int, top_k: int, balance: float) -> None:
        super().__init__()
        self.router, self.experts = router, experts
        self.num_experts, self.top_k, self.balance = num_experts, top_k, balance
        self.routing: Routing | None = None
        self._auxiliary_loss: Tensor | None = None

    def forward(self, x_BTD: Tensor) -> Tensor:
        """x_BTD to y_BTD; leaves the balance loss for `take_auxiliary_loss` and the load in `routing`."""
        x_ND = x_BTD.flatten(0, -2)
        logits_NE = self.router(x_ND)
        probability_NE = logits_NE.to(torch.promote_types(logits_NE.dtype, torch.float32)).softmax(-1)
        gate_NC, expert_NC = probability_NE.topk(self.top_k, dim=-1)
        if self.top_k > 1:
            gate_NC = gate_NC / gate_NC.sum(-1, keepdim=True)
        count_E = count_assignments(expert_NC, num_experts=self.num_experts)
        self._note(probability_NE, count_E)
        y_NCD = self._apply_experts(x_ND, expert_NC, count_E)
        y_ND = (gate_NC.unsqueeze(-1) * y_NCD).sum(1)
        return y_ND.to(x_BTD.dtype).view_as(x_BTD)

    def take_auxiliary_loss(self) -> Tensor | None:
        """The weighted balance loss of the last forward pass, once."""
        loss, self._auxiliary_loss = self._auxiliary_loss, None
        return loss

    def _note(self, probability_NE: Tensor, count_E: Tensor) -> None:
        load_E = count_E / count_E.sum()
        self._auxiliary_loss = self.balance * balance_loss(probability_NE, load_E=load_E)
        self.routing = Routing(load_E)

    def _apply_experts(self, x_ND: Tensor, expert_NC: Tensor, count_E: Tensor) -> Tensor:
        num_slots = _slots_per_expert(count_E, num_assignments=expert_NC.numel())
        slot_A = assign_slots(expert_NC.flatten(), count_E=count_E, num_slots=num_slots)
        x_AD = x_ND.repeat_interleave(self.top_k, dim=0)
        padded_SD = x_AD.new_zeros(self.num_experts * num_slots, x_AD.shape[-1]).index_copy(0, slot_A, x_AD)
        y_ERD = self.experts(padded_SD.unflatten(0, (self.num_experts, num_slots)))
        return y_ERD.flatten(0, 1).index_select(0, slot_A).unflatten(0, expert_NC.shape)


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


def balance_loss(probability_NE: Tensor, *, load_E: Tensor) -> Tensor:
    """E * sum of load * mean probability (Fedus et al. 2021, equations 4 - 6): 1 when both are even."""
    return load_E.shape[0] * (load_E * probability_NE.mean(0)).sum()


def _slots_per_expert(count_E: Tensor, *, num_assignments: int) -> int:
    # A meta tensor has no loads; an even one makes its shapes those of the active computation.
    if count_E.is_meta:
        return -(-num_assignments // count_E.shape[0])
    return int(count_E.max())
