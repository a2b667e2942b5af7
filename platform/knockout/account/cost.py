"""What one part costs.

The invariant: plain numbers that add up; no torch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Parameters held, parameters that work on a token, FLOPs of one token's forward pass, and numbers its maps put out."""

    parameters: int = 0
    active: int = 0
    flops_per_token: int = 0
    outputs: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.parameters + other.parameters,
            self.active + other.active,
            self.flops_per_token + other.flops_per_token,
            self.outputs + other.outputs,
        )

    def __mul__(self, times: int) -> Cost:
        return Cost(self.parameters * times, self.active * times, self.flops_per_token * times, self.outputs * times)


def table(rows: int, columns: int) -> Cost:
    """A table in which a token looks up a row: no multiplications."""
    return Cost(rows * columns, rows * columns)


def linear(inputs: int, outputs: int, *, bias: bool) -> Cost:
    """A linear map: one multiplication and one addition a weight, 2 FLOPs; the bias adds none."""
    parameters = inputs * outputs + (outputs if bias else 0)
    return Cost(parameters, parameters, 2 * inputs * outputs, outputs)
