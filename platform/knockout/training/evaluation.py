"""The exam: the frozen evaluation tokens of a corpus, in float32, as sums over tokens.

The invariant: the result does not depend on the batch size, and every variant with the same context sits the same exam.
T: predicted tokens · B: windows · V: vocabulary
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from knockout.corpus.batches import evaluation_batches, evaluation_bytes, evaluation_tokens
from knockout.corpus.reading import Split

WINDOWS_AT_ONCE = 32
GENERATION_WINDOWS = 16
"""Windows on which generation_loss is measured: a prefix for each of their tokens is run by itself."""


@dataclass(frozen=True, eq=False)
class Exam:
    """The evaluation windows of a corpus for one context, in memory, a few at a time."""

    batches_BT: tuple[Tensor, ...]
    few_BT: Tensor
    """The windows on which generation_loss is measured, spread evenly over the exam."""
    num_tokens: int
    num_bytes: int

    @classmethod
    def of(cls, split: Split, *, context: int, device: str) -> Exam:
        """The exam of a corpus' evaluation split: windows of context + 1 tokens."""
        rows = evaluation_batches(split, context=context, batch=WINDOWS_AT_ONCE)
        batches = tuple(torch.from_numpy(row).to(device) for row in rows)
        whole_BT = torch.cat([rows_BT for rows_BT in batches if rows_BT.shape[1] == context + 1])
        few_BT = whole_BT[:: max(1, len(whole_BT) // GENERATION_WINDOWS)][:GENERATION_WINDOWS]
        return cls(batches, few_BT, evaluation_tokens(split.manifest), evaluation_bytes(split.manifest))


@torch.no_grad()
def evaluate(network: nn.Module, *, exam: Exam, causal: bool) -> dict[str, float]:
    """val_loss (nats per token), bits_per_byte, and generation_loss, each over the same tokens for every variant.

    generation_loss is the loss when each token is predicted from its prefix alone. For a causal model that is what
    the exam measures anyhow; a model that can see later tokens is run on each prefix by itself.
    """
    training = network.training
    network.eval()
    try:
        losses = [_losses(network, rows_BT) for rows_BT in exam.batches_BT]
        alone_BT = _losses(network, exam.few_BT) if causal else _prefix_losses(network, windows_BT=exam.few_BT)
    finally:
        network.train(training)
    total = sum(loss_BT.double().sum().item() for loss_BT in losses)
    return {
        "val_loss": total / exam.num_tokens,
        "bits_per_byte": total / (math.log(2.0) * exam.num_bytes),
        "generation_loss": alone_BT.double().mean().item(),
    }


def _losses(network: nn.Module, rows_BT: Tensor) -> Tensor:
    """Loss of each predicted token [B, T]."""
    logits_BTV = network(rows_BT[:, :-1]).logits_BTV.float()
    return F.cross_entropy(logits_BTV.flatten(0, 1), rows_BT[:, 1:].flatten(), reduction="none").view(len(rows_BT), -1)


def _prefix_losses(network: nn.Module, *, windows_BT: Tensor) -> Tensor:
    """Loss of each token [B, T] when the network is given only the tokens before it."""
    columns = []
    for length in range(1, windows_BT.shape[1]):
        logits_BV = network(windows_BT[:, :length]).logits_BTV[:, -1].float()
        columns.append(F.cross_entropy(logits_BV, windows_BT[:, length], reduction="none"))
    return torch.stack(columns, dim=1)
