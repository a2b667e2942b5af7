"""What training minimises over the answers that count, and what it reports.

The invariant: `train_loss` is the cross-entropy in nats whatever is minimised, so that curves can be compared.

Legend: N answers, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from knockout.declare.recipe import CrossEntropy, HardMargin, Loss


@dataclass(frozen=True, eq=False)
class Losses:
    """Two scalars over the same answers."""

    nats: Tensor
    """Mean cross-entropy, in nats per token."""
    minimised: Tensor
    """Mean of what the recipe's loss is."""


def losses(loss: Loss, *, logits_NV: Tensor, answers_N: Tensor) -> Losses:
    """The recipe's loss beside the cross-entropy."""
    nats = F.cross_entropy(logits_NV, answers_N)
    match loss:
        case CrossEntropy(z_loss=0.0):
            return Losses(nats, nats)
        case CrossEntropy(z_loss=weight):
            return Losses(nats, nats + weight * log_z_squared(logits_NV))
        case HardMargin(margin=margin):
            return Losses(nats, hinge(logits_NV, answers_N=answers_N, margin=margin))


def log_z_squared(logits_NV: Tensor) -> Tensor:
    """Mean of log(sum of exp(logits))^2, a scalar (Chowdhery et al. 2022, "PaLM", section 5)."""
    return logits_NV.logsumexp(-1).square().mean()


def hinge(logits_NV: Tensor, *, answers_N: Tensor, margin: float) -> Tensor:
    """Mean of max(0, margin + the best wrong logit - the right one) (Crammer & Singer 2001, section 3), a scalar."""
    right_N = logits_NV.gather(1, answers_N.unsqueeze(1)).squeeze(1)
    wrong_NV = logits_NV.scatter(1, answers_N.unsqueeze(1), -torch.inf)
    return F.relu(margin + wrong_NV.amax(-1) - right_N).mean()
