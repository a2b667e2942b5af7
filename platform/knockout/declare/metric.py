"""What can be compared, and in which unit.

The invariant: of a loss, lower is better; of nothing else is that said.
"""

from __future__ import annotations

from typing import Literal, get_args

Loss = Literal["val_loss", "train_loss", "bits_per_byte", "generation_loss"]
"""What training makes smaller: nats per token, and bits per byte."""

Metric = Literal[Loss, "peak_memory_bytes", "tokens_per_second", "routing_entropy"]
"""What can be compared. peak_memory_bytes is what tensors take at most in a training step, tokens_per_second the speed of
training; routing_entropy is how evenly a router spreads its tokens, in nats, the mean over the layers with experts."""

LOSSES: tuple[str, ...] = get_args(Loss)
CHEATED = ("val_loss", "bits_per_byte")
"""Metrics that a model which sees the future reads off its input."""
EXPENSES = ("peak_memory_bytes", "tokens_per_second")
"""What a training costs, whatever it learns."""
