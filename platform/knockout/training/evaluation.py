"""The exam: the frozen evaluation tokens of a corpus, in float32, as sums over tokens.

The invariant: the result does not depend on the batch size, and every variant with the same context and objective sits
the same exam; generation_loss is the same question for every objective.
T: predicted tokens · W: tokens in a window, T + 1 · B: windows · N: answers that count · V: vocabulary
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from knockout.corpus.batches import evaluation_batches
from knockout.corpus.reading import Split
from knockout.corpus.shuffled import shuffled_places
from knockout.declare.architecture import Architecture
from knockout.declare.parts import NextTokenObjective
from knockout.declare.recipe import ContiguousPacking, Packing
from knockout.model import Network
from knockout.model.documents import documents_in
from knockout.model.objective import Question, ask_exam, next_token_logits
from knockout.training.data import border
from knockout.training.routing import counted_routing

WINDOWS_AT_ONCE = 32
GENERATION_WINDOWS = 16
"""Windows on which generation_loss is measured: a prefix for each of their tokens is run by itself."""
EXAM_SEED = 0
"""What an objective draws for the exam is drawn from this, for every run and step."""


@dataclass(frozen=True, eq=False)
class Exam:
    """The evaluation windows of a corpus for one context, in memory."""

    windows_BW: tuple[Tensor, ...]
    """All windows of one length, for each of the lengths there are."""
    few_BW: Tensor
    """The windows on which generation_loss is measured, spread evenly over the exam."""
    token_bytes_V: Tensor
    """Raw bytes that each token stands for."""
    end_of_text: int | None = None
    """The token that ends a document, where each is read by itself."""

    @classmethod
    def of(
        cls,
        split: Split,
        *,
        context: int,
        device: str,
        shuffled: bool = False,
        packing: Packing = ContiguousPacking(),  # noqa: B008
    ) -> Exam:
        """The exam of a corpus' evaluation split: windows of context + 1 tokens, the same in a random order if shuffled."""
        rows = evaluation_batches(split, context=context, batch=WINDOWS_AT_ONCE)
        batches = [torch.from_numpy(row).to(device) for row in rows]
        windows_BW = tuple(torch.cat(list(same)) for _, same in groupby(batches, key=lambda rows_BW: rows_BW.shape[1]))
        windows_BW = tuple(map(_shuffled, windows_BW)) if shuffled else windows_BW
        whole_BW = windows_BW[0]
        few_BW = whole_BW[:: max(1, len(whole_BW) // GENERATION_WINDOWS)][:GENERATION_WINDOWS]
        token_bytes_V = torch.tensor(split.manifest.token_bytes, device=device)
        return cls(windows_BW, few_BW, token_bytes_V, border(packing, manifest=split.manifest))

    def questions(self, network: Network) -> list[Question]:
        """The exam as the network's objective asks it, a few windows at a time."""
        fixed = {"architecture": network.architecture, "seed": EXAM_SEED, "end_of_text": self.end_of_text}
        asked = (ask_exam(rows_BW, **fixed) for rows_BW in self.windows_BW)
        return [part for question in asked for part in question.split(WINDOWS_AT_ONCE)]


def _shuffled(windows_BW: Tensor) -> Tensor:
    """The windows with the tokens to predict in a random order over all of them, and their first ones as they are."""
    answers_BT = windows_BW[:, 1:]
    count = answers_BT.numel()
    order_N = torch.from_numpy(shuffled_places(np.arange(count), size=count)).to(windows_BW.device)
    return torch.cat([windows_BW[:, :1], answers_BT.flatten()[order_N].reshape(answers_BT.shape)], dim=1)


@torch.no_grad()
def evaluate(network: Network, *, exam: Exam, causal: bool) -> dict[str, float]:
    """val_loss (nats per token), bits_per_byte, and generation_loss, the last over the same tokens for every variant.

    val_loss and bits_per_byte are over the answers that count under the network's objective. generation_loss is the
    loss when each token is predicted from its prefix alone. For a causal model of the next token that is what the exam
    measures anyhow; any other is run on each prefix by itself. A network with mixtures gets their routing on the exam's
    windows too, as `CountedRouting.metrics` names it.
    """
    at_once = causal and sees_all_at_once(network.architecture)
    training = network.training
    network.eval()
    try:
        questions = exam.questions(network)
        with counted_routing(network) as routing:
            losses = [_losses(network, question) for question in questions]
        alone_N = (_next_token_losses if at_once else _prefix_losses)(network, exam.few_BW, end_of_text=exam.end_of_text)
    finally:
        network.train(training)
    total = sum(loss_N.double().sum().item() for loss_N in losses)
    num_bytes = sum(int(exam.token_bytes_V[question.answers_N].sum()) for question in questions)
    return {
        "val_loss": total / sum(loss_N.numel() for loss_N in losses),
        "bits_per_byte": total / (math.log(2.0) * num_bytes),
        "generation_loss": alone_N.double().mean().item(),
        **routing.metrics(),
    }


def sees_all_at_once(architecture: Architecture) -> bool:
    """Whether one pass gives the loss of each token from its prefix alone."""
    return architecture.causal and isinstance(architecture.objective, NextTokenObjective)


def _losses(network: Network, question: Question) -> Tensor:
    """Loss of each answer that counts, loss_N. Never compiled: the exam's shapes are not training's."""
    logits_NV = question.logits_NV(question.put_to(network.forward)).float()
    return F.cross_entropy(logits_NV, question.answers_N, reduction="none")


def _next_token_losses(network: Network, windows_BW: Tensor, *, end_of_text: int | None) -> Tensor:
    """Loss of each token, all at once, by a network in which none sees a later one."""
    shown_BT = windows_BW[:, :-1]
    logits_BTV = network.forward(shown_BT, documents=documents_in(shown_BT, end_of_text=end_of_text)).logits_BTV.float()
    return F.cross_entropy(logits_BTV.flatten(0, 1), windows_BW[:, 1:].flatten(), reduction="none")


def _prefix_losses(network: Network, windows_BW: Tensor, *, end_of_text: int | None) -> Tensor:
    """Loss of each token when the network is given only the tokens before it."""
    columns = []
    for length in range(1, windows_BW.shape[1]):
        logits_BV = next_token_logits(network, windows_BW[:, :length], end_of_text=end_of_text).float()
        columns.append(F.cross_entropy(logits_BV, windows_BW[:, length], reduction="none"))
    return torch.cat(columns)
