"""From logits to the next token.

The invariant: every draw comes from the generator that is given, and takes one number a sequence whatever the kind.

Legend: B batch, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from knockout.declare.sampling import GreedySampling, Sampling, TemperatureSampling, TopKSampling, TopPSampling

COLDEST = 1e-30
"""The lowest temperature that is told apart from 0, in float32 too; there only the most probable tokens are left."""


def choose(logits_BV: Tensor, *, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """One token a sequence, token_B; the generator is on the logits' device and not used by greedy."""
    if isinstance(sampling, GreedySampling):
        return logits_BV.argmax(-1)
    return torch.multinomial(probabilities(logits_BV, sampling=sampling), 1, generator=generator).squeeze(-1)


def probabilities(logits_BV: Tensor, *, sampling: Sampling) -> Tensor:
    """With what probability each token is chosen, probability_BV, in float32 at least."""
    exact_BV = logits_BV.to(torch.promote_types(logits_BV.dtype, torch.float32))
    match sampling:
        case GreedySampling():
            return torch.zeros_like(exact_BV).scatter(-1, exact_BV.argmax(-1, keepdim=True), 1.0)
        case TemperatureSampling(temperature=temperature):
            return _tempered(exact_BV, temperature=temperature).softmax(-1)
        case TopKSampling(k=k, temperature=temperature):
            return _keep(_tempered(exact_BV, temperature=temperature), rank_is_kept=_first(k, like_BV=exact_BV))
        case TopPSampling(p=p, temperature=temperature):
            tempered_BV = _tempered(exact_BV, temperature=temperature)
            sorted_BV = tempered_BV.softmax(-1).sort(-1, descending=True).values
            # A token is kept while those before it do not sum to p yet: the first one always is.
            return _keep(tempered_BV, rank_is_kept=sorted_BV.cumsum(-1) - sorted_BV < p)


def _tempered(logits_BV: Tensor, *, temperature: float) -> Tensor:
    """logits / temperature less their largest, so that a low temperature takes the others to minus infinity, not all."""
    return (logits_BV - logits_BV.amax(-1, keepdim=True)) / max(temperature, COLDEST)


def _first(k: int, *, like_BV: Tensor) -> Tensor:
    return (torch.arange(like_BV.shape[-1], device=like_BV.device) < k).expand_as(like_BV)


def _keep(logits_BV: Tensor, *, rank_is_kept: Tensor) -> Tensor:
    """The softmax over the tokens whose rank is kept, the most probable first; of equals, the lower number first."""
    order_BV = logits_BV.sort(dim=-1, descending=True, stable=True).indices
    kept_BV = torch.zeros_like(rank_is_kept).scatter(-1, order_BV, rank_is_kept)
    return logits_BV.masked_fill(~kept_BV, -torch.inf).softmax(-1)
