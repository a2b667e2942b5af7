"""What keeps the load of a mixture's experts even.

The invariant: a balance changes which experts are chosen, or what is asked of the optimiser, and never an expert's
gate.

Legend: N tokens, E experts.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from knockout.declare import parts as declared


class Balance(nn.Module):
    """Sees the scores before the choice, and the load after it; this one does nothing."""

    def forward(self, score_NE: Tensor) -> Tensor:
        """The scores by which experts are chosen, from those that become gates."""
        return score_NE

    def loss(self, score_NE: Tensor, *, load_E: Tensor) -> Tensor | None:
        """What the optimiser is asked for beside the training loss: a scalar, or None."""
        return None

    def observe(self, count_E: Tensor) -> None:
        """Take note of how many tokens each expert got in one training pass."""


class LossBalance(Balance):
    """The weighted loss of Fedus et al. 2021, equations 4 - 6."""

    def __init__(self, *, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def loss(self, score_NE: Tensor, *, load_E: Tensor) -> Tensor:
        """The weighted loss, a scalar."""
        return self.weight * balance_loss(score_NE, load_E=load_E)


class BiasBalance(Balance):
    """A number an expert is added to its score for the choice alone (Wang et al. 2024, algorithm 1).

    `choice_bias` is state and no parameter. It moves in `end_step`, once an optimizer step, by the tokens of all
    passes since the last one.
    """

    choice_bias: Tensor
    count: Tensor

    def __init__(self, *, num_experts: int, speed: float) -> None:
        super().__init__()
        self.speed = speed
        self.register_buffer("choice_bias", torch.zeros(num_experts))
        self.register_buffer("count", torch.zeros(num_experts, dtype=torch.int64), persistent=False)

    def forward(self, score_NE: Tensor) -> Tensor:
        """The scores, each expert's moved by its number."""
        return score_NE.detach() + self.choice_bias

    def observe(self, count_E: Tensor) -> None:
        """Add to the tokens of this optimizer step."""
        self.count += count_E

    def end_step(self) -> None:
        """Raise the numbers of experts with fewer tokens than the mean by `speed`, lower the others'."""
        count_E = self.count.to(self.choice_bias.dtype)
        self.choice_bias += self.speed * (count_E.mean() - count_E).sign()
        self.count.zero_()


def balance_loss(score_NE: Tensor, *, load_E: Tensor) -> Tensor:
    """E * sum of load * mean share of the score (Fedus et al. 2021, equations 4 - 6): 1 when both are even.

    Scores that do not sum to 1 over the experts are divided by their sum (DeepSeek-AI 2024, "DeepSeek-V3",
    equation 19).
    """
    share_NE = score_NE / score_NE.sum(-1, keepdim=True)
    return load_E.shape[0] * (load_E * share_NE.mean(0)).sum()


def end_step(network: nn.Module) -> None:
    """Tell every balance in `network` that the optimizer has taken a step."""
    for module in network.modules():
        if isinstance(module, BiasBalance):
            module.end_step()


def build_balance(balance: declared.Balance, *, num_experts: int) -> Balance:
    """The balance that the declaration asks for."""
    match balance:
        case declared.LossBalance(weight=weight):
            return LossBalance(weight=weight)
        case declared.BiasBalance(speed=speed):
            return BiasBalance(num_experts=num_experts, speed=speed)
        case declared.NoBalance():
            return Balance()
