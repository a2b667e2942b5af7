"""Linear maps that leave their weights to `initialise`.

The invariant: making a part never draws from the global random generator.

Legend: E experts, R rows an expert, I inputs, O outputs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from knockout.model.kernels import linear


class Linear(nn.Linear):
    """torch's linear layer, with weights that are empty until `initialise` fills them and the faster product."""

    def forward(self, input: Tensor) -> Tensor:
        """input [..., I] to [..., O]."""
        return linear(input, self.weight, self.bias)

    def reset_parameters(self) -> None:
        """Leave the weights alone: they are drawn by name, not in order of construction."""


class ExpertLinear(nn.Module):
    """One linear map an expert, all applied in a single batched product."""

    def __init__(self, num_experts: int, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_experts, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(num_experts, outputs)) if bias else None

    def forward(self, x_ERI: Tensor) -> Tensor:
        """Rows sorted by expert, x_ERI, to y_ERO."""
        weight_EIO = self.weight.transpose(1, 2)
        if self.bias is None:
            return torch.bmm(x_ERI, weight_EIO)
        return torch.baddbmm(self.bias.unsqueeze(1), x_ERI, weight_EIO)
