"""What a network is asked: from a window of tokens to what it is shown, what it must name, and where that counts.

The invariant: what is drawn (masks, prefixes) depends on the seed that is given and the windows' place alone, and is
drawn on the CPU; so a resumed run asks what an uninterrupted one asks, on every device.

Legend: B windows, T tokens that a window predicts, W = T + 1 tokens in a window, L tokens of a prefix, N answers that
count, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from knockout.declare.architecture import Architecture
from knockout.declare.parts import MaskedObjective, NextTokenObjective, PrefixObjective
from knockout.declare.parts.objective import prefix_tokens
from knockout.model.documents import Documents, documents_in
from knockout.model.initialise import stable_seed
from knockout.model.network import Network, Prediction


@dataclass(frozen=True, eq=False)
class Question:
    """Windows as a network is asked about them."""

    shown_BT: Tensor
    """What the network reads."""
    answers_BT: Tensor
    """The token that each position must name."""
    first: int = 0
    """The first position whose answer counts."""
    counted_BT: Tensor | None = None
    """True where an answer counts, from `first` on; None for everywhere."""
    prefix: int = 0
    """How many first tokens every position may read."""
    documents: Documents | None = None
    """The documents that are read each by itself; None where the window is read as a whole."""

    def put_to(self, network: Callable[..., Prediction]) -> Prediction:
        """What the network says; its `forward` alone is never compiled."""
        if self.documents is not None:
            return network(self.shown_BT, documents=self.documents)
        return network(self.shown_BT, prefix=self.prefix) if self.prefix else network(self.shown_BT)

    @property
    def answers_N(self) -> Tensor:
        """The answers that count."""
        answers_BT = self.answers_BT[:, self.first :]
        return answers_BT.flatten() if self.counted_BT is None else answers_BT[self.counted_BT[:, self.first :]]

    def logits_NV(self, prediction: Prediction) -> Tensor:
        """The logits of the answers that count; a network may say nothing about positions before `first`."""
        num_asked = self.answers_BT.shape[1] - self.first
        logits_BTV = prediction.logits_BTV[:, -num_asked:]
        return logits_BTV.flatten(0, 1) if self.counted_BT is None else logits_BTV[self.counted_BT[:, self.first :]]

    def split(self, num_windows: int) -> list[Question]:
        """The same question about at most so many windows at a time."""
        shown, answers = self.shown_BT.split(num_windows), self.answers_BT.split(num_windows)
        counted = [None] * len(shown) if self.counted_BT is None else self.counted_BT.split(num_windows)
        documents = [None] * len(shown) if self.documents is None else self.documents.split(num_windows)
        return [
            Question(s, a, first=self.first, counted_BT=c, prefix=self.prefix, documents=d)
            for s, a, c, d in zip(shown, answers, counted, documents, strict=True)
        ]


def ask(
    windows_BW: Tensor, *, architecture: Architecture, seed: int, part: int = 0, end_of_text: int | None = None
) -> Question:
    """The declared objective's question about windows.

    Draws depend on `seed`, one number a step; and masks on `part` too, the place of a micro-batch within its step. Where
    every document is to be read by itself, `end_of_text` is the token that ends one; only for the next token's objective.
    """
    shown_BT, answers_BT = windows_BW[:, :-1], windows_BW[:, 1:]
    match architecture.objective:
        case NextTokenObjective():
            return Question(shown_BT, answers_BT, documents=documents_in(shown_BT, end_of_text=end_of_text))
        case MaskedObjective() as objective:
            return _hide(answers_BT, objective=objective, vocabulary=architecture.vocabulary, seed=seed, part=part)
        case PrefixObjective(share=share):
            num_tokens = shown_BT.shape[1]
            prefix = prefix_tokens(share, num_tokens=num_tokens) if share else _drawn_prefix(num_tokens, seed=seed)
            return Question(shown_BT, answers_BT, first=prefix - 1, prefix=prefix)


def ask_exam(windows_BW: Tensor, *, architecture: Architecture, seed: int, end_of_text: int | None = None) -> Question:
    """The question of the exam, in which the length of a prefix is not drawn."""
    objective = architecture.objective
    if isinstance(objective, PrefixObjective):
        fixed = {"objective": objective.model_copy(update={"share": objective.exam_share})}
        architecture = architecture.model_copy(update=fixed)
    return ask(windows_BW, architecture=architecture, seed=seed, end_of_text=end_of_text)


def next_token_logits(network: Network, prefix_BL: Tensor, *, end_of_text: int | None = None) -> Tensor:
    """logits_BV of the token after a prefix, of which the network is shown nothing later.

    With masked tokens, a mask stands where the token is to be named; of a prefix as long as the context, the first
    token makes room for it. With a prefix objective, all of it is read in both directions, as far as in training.
    `end_of_text` is as in `ask`. Never compiled: each prefix has another shape.
    """
    architecture, num_tokens = network.architecture, prefix_BL.shape[1]
    match architecture.objective:
        case NextTokenObjective():
            documents = documents_in(prefix_BL, end_of_text=end_of_text)
            return network.forward(prefix_BL, documents=documents).logits_BTV[:, -1]
        case MaskedObjective():
            kept_BL = prefix_BL[:, max(0, num_tokens + 1 - architecture.context) :]
            mask_B1 = torch.full_like(prefix_BL[:, :1], architecture.vocabulary)
            return network.forward(torch.cat((kept_BL, mask_B1), dim=1)).logits_BTV[:, -1]
        case PrefixObjective(share=share):
            longest = prefix_tokens(share, num_tokens=architecture.context) if share else num_tokens
            return network.forward(prefix_BL, prefix=min(longest, num_tokens)).logits_BTV[:, -1]


def _drawn_prefix(num_tokens: int, *, seed: int) -> int:
    generator = torch.Generator().manual_seed(stable_seed(seed, name="prefix"))
    return int(torch.randint(1, max(2, num_tokens), (), generator=generator))


def _hide(tokens_BT: Tensor, *, objective: MaskedObjective, vocabulary: int, seed: int, part: int) -> Question:
    """Hide the same number of tokens in every window; the mask is the id after the vocabulary's last."""
    generator = torch.Generator().manual_seed(stable_seed(seed, name=f"mask/{part}"))
    num_hidden = max(1, round(objective.rate * tokens_BT.shape[1]))
    chosen_BT = torch.rand(tokens_BT.shape, generator=generator).argsort(dim=1) < num_hidden
    fate_BT = torch.rand(tokens_BT.shape, generator=generator)
    other_BT = torch.randint(vocabulary, tokens_BT.shape, generator=generator)
    masked_BT = chosen_BT & (fate_BT < objective.masked)
    replaced_BT = chosen_BT & ~masked_BT & (fate_BT < objective.masked + objective.random)
    device = tokens_BT.device
    shown_BT = torch.where(replaced_BT.to(device), other_BT.to(device), tokens_BT)
    shown_BT = shown_BT.masked_fill(masked_BT.to(device), vocabulary)
    return Question(shown_BT, tokens_BT, counted_BT=chosen_BT.to(device))
