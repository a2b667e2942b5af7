"""Linear recurrences over the positions of a sequence, all of them at once.

The invariant: only products of decays are formed, never their inverses, so decays between 0 and 1 can neither overflow
nor lose what is left of a state.

Legend: B batch, T positions; `...` any axes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def linear_recurrence(decay_BT: Tensor, added_BT: Tensor, *, start_B: Tensor) -> Tensor:
    """The states h_t = decay_t * h_(t-1) + added_t with h_(-1) = start; [B, T, ...] from [B, T, ...] and [B, ...].

    An associative scan (Blelloch 1990): 2 log2(T) steps over whole tensors, and as much again for the gradients, which
    obey the same recurrence from the end to the beginning.
    """
    first_B1 = (added_BT[:, 0] + decay_BT[:, 0] * start_B).unsqueeze(1)
    return _Recurrence.apply(decay_BT, torch.cat((first_B1, added_BT[:, 1:]), dim=1))


class _Recurrence(torch.autograd.Function):
    """h_t = decay_t * h_(t-1) + added_t from a state of 0: the first decay has no effect."""

    @staticmethod
    def forward(ctx: Any, decay_BT: Tensor, added_BT: Tensor) -> Tensor:
        """The states."""
        state_BT = _scan(decay_BT, added_BT)
        ctx.save_for_backward(decay_BT, state_BT)
        return state_BT

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of decays and of what was added."""
        decay_BT, state_BT = ctx.saved_tensors
        (gradient_BT,) = gradients
        later_BT = torch.cat((decay_BT[:, 1:], torch.zeros_like(decay_BT[:, :1])), dim=1)
        for_added_BT = _Recurrence.apply(later_BT.flip(1), gradient_BT.flip(1)).flip(1)
        before_BT = torch.cat((torch.zeros_like(state_BT[:, :1]), state_BT[:, :-1]), dim=1)
        return for_added_BT * before_BT, for_added_BT


def _scan(decay_BT: Tensor, added_BT: Tensor) -> Tensor:
    """Neighbours are joined into one step, the half as long recurrence is solved, and the states between are filled in."""
    num_steps = added_BT.shape[1]
    if num_steps == 1:
        return added_BT
    num_pairs = num_steps // 2
    even_decay, odd_decay = decay_BT[:, 0::2], decay_BT[:, 1::2]
    even_added, odd_added = added_BT[:, 0::2], added_BT[:, 1::2]
    joined_added = torch.addcmul(odd_added, odd_decay, even_added[:, :num_pairs])
    odd_state = _scan(odd_decay * even_decay[:, :num_pairs], joined_added)
    state_BT = torch.empty_like(added_BT)
    state_BT[:, 0] = added_BT[:, 0]
    state_BT[:, 1::2] = odd_state
    num_between = even_added.shape[1] - 1
    state_BT[:, 2::2] = torch.addcmul(even_added[:, 1:], even_decay[:, 1:], odd_state[:, :num_between])
    return state_BT
