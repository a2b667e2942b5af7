"""Properties of what training goes by: the loss' gradient, what passes one, and a table with two uses.

Legend: B batch, T tokens, D width, N rows, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from knockout.declare.architecture import Architecture
from knockout.declare.parts import UntiedHead
from knockout.model.network import Network
from knockout.model.properties.finding import EXACT, Finding, Map, difference, draw, network_of, same, tokens_of

NUM_ROWS = 64
STEP = 1e-6
"""Length of the steps with which a function's changes are felt out."""


def argmax_passes_a_gradient(architecture: Architecture) -> Finding:
    """Whether small steps of the logits change the one-hot vector of the largest."""
    return _slope(lambda x: F.one_hot(x.argmax(-1), x.shape[-1]).double(), architecture, words="one-hot(argmax)")


def softmax_passes_a_gradient(architecture: Architecture) -> Finding:
    """Whether small steps of the logits change the softmax."""
    return _slope(lambda x: x.softmax(-1), architecture, words="softmax")


def logit_gradient_is_the_error(architecture: Architecture) -> Finding:
    """Whether one position's loss -log p(target) has the gradient p - one-hot by its logits."""
    return _as_error(architecture, num_rows=1)


def logit_gradient_of_the_mean_is_the_error(architecture: Architecture) -> Finding:
    """Whether the mean loss over many positions has the gradient p - one-hot by the logits of each."""
    return _as_error(architecture, num_rows=NUM_ROWS)


def tied_head_is_the_table(architecture: Architecture) -> Finding:
    """Whether the network's only table of tokens serves on both sides, and logits are products with its rows."""
    network, tokens_BT = network_of(architecture), tokens_of(architecture)
    tables = [name for name, _ in network.named_parameters() if name.startswith(("embedding.", "head."))]
    x_BTD = draw(*tokens_BT.shape, architecture.width, name="x")
    with torch.no_grad():
        gap = difference(network.head(x_BTD, network.embedding.weight), x_BTD @ network.embedding.weight.T)
    shape = f"{architecture.vocabulary} × {architecture.width}"
    detail = f"tables of {shape}: {', '.join(tables)}; logits are products with the embedding's rows to {gap:.1e}"
    return Finding(tables == ["embedding.weight"] and gap <= EXACT, gap, detail)


def tied_gradient_sums_both_uses(architecture: Architecture) -> Finding:
    """Whether the tied table's gradient is that of an untied network's table plus that of its head, weights equal."""
    tied = network_of(architecture)
    untied = network_of(architecture.model_copy(update={"head": UntiedHead()}))
    with torch.no_grad():
        for name, parameter in untied.named_parameters():
            parameter.copy_(tied.get_parameter("embedding.weight" if name == "head.weight" else name))
    both = _table_gradients(tied, architecture)["embedding.weight"]
    apart = _table_gradients(untied, architecture)
    entry, exit_ = apart["embedding.weight"], apart["head.weight"]
    sizes = f"{entry.norm().item():.3f} through the embedding, {exit_.norm().item():.3f} through the head"
    return same(
        both,
        entry + exit_,
        equal=f"the tied table's gradient is the sum of both uses' ({sizes})",
        unequal=f"the tied table's gradient is not the sum of both uses' ({sizes})",
    )


def _slope(function: Map, architecture: Architecture, *, words: str) -> Finding:
    logits_NV = draw(NUM_ROWS, architecture.vocabulary, name="logits")
    moved_NV = logits_NV + draw(NUM_ROWS, architecture.vocabulary, name="step", scale=STEP)
    slope = ((function(moved_NV) - function(logits_NV)).abs().max() / STEP).item()
    change = "changes with" if slope > 0 else "does not change under"
    return Finding(
        slope > 0, slope, f"{words} {change} small steps of the logits (largest slope {slope:.2g} over {NUM_ROWS} rows)"
    )


def _as_error(architecture: Architecture, *, num_rows: int) -> Finding:
    logits_NV = draw(num_rows, architecture.vocabulary, name="logits").requires_grad_()
    target_N = torch.arange(num_rows) % architecture.vocabulary
    (gradient_NV,) = torch.autograd.grad(F.cross_entropy(logits_NV, target_N), logits_NV)
    error_NV = logits_NV.detach().softmax(-1) - F.one_hot(target_N, architecture.vocabulary)
    ratio = (error_NV.norm() / gradient_NV.norm()).item()
    return same(
        gradient_NV,
        error_NV,
        equal="the gradient by the logits is p - one-hot",
        unequal=f"p - one-hot is {ratio:.0f} times the gradient, since the mean divides by its {num_rows} positions",
    )


def _table_gradients(network: Network, architecture: Architecture) -> dict[str, Tensor]:
    tokens_BT = tokens_of(architecture)
    logits_BTV = network(tokens_BT[:, :-1]).logits_BTV
    loss = F.cross_entropy(logits_BTV.flatten(0, 1), tokens_BT[:, 1:].flatten())
    names = [name for name, _ in network.named_parameters() if name in ("embedding.weight", "head.weight")]
    gradients = torch.autograd.grad(loss, [network.get_parameter(name) for name in names])
    return dict(zip(names, gradients, strict=True))
