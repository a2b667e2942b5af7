"""What a check found, and the small networks and inputs that checks share.

The invariant: a check is a pure function of an architecture; all it draws comes from seeds named here, in float64.

Legend: B batch, T tokens, D width, H heads, K head width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from knockout.declare.architecture import Architecture
from knockout.model.building import build
from knockout.model.initialise import stable_seed
from knockout.model.network import Network

EXACT = 1e-9
"""The largest relative difference that still counts as rounding in float64."""

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Finding:
    """Whether a property holds, the number that decided it, and what was seen, in one sentence."""

    holds: bool
    measured: float
    detail: str


def difference(found: Tensor, expected: Tensor) -> float:
    """The largest absolute difference over the largest expected value."""
    scale = expected.abs().max().clamp_min(torch.finfo(torch.float64).tiny)
    return ((found - expected).abs().max() / scale).item()


def same(found: Tensor, expected: Tensor, *, equal: str, unequal: str) -> Finding:
    """A property that holds when two tensors are equal up to rounding, with the sentence for either case."""
    gap = difference(found, expected)
    holds = gap <= EXACT
    return Finding(holds, gap, f"{equal if holds else unequal} (largest relative difference {gap:.1e})")


def affine(function: Map, *, shape: tuple[int, ...], what: str) -> Finding:
    """Whether f(x + y) + f(0) = f(x) + f(y): linear but for a constant."""
    x, y = draw(*shape, name="x"), draw(*shape, name="y")
    with torch.no_grad():
        together, apart = function(x + y) + function(torch.zeros_like(x)), function(x) + function(y)
    gap = difference(together, apart)
    holds = gap <= EXACT
    relation = "equals" if holds else "is not"
    return Finding(holds, gap, f"{what}: f(x + y) + f(0) {relation} f(x) + f(y) (largest relative difference {gap:.1e})")


def draw(*shape: int, name: str, scale: float = 1.0) -> Tensor:
    """Standard normal numbers times `scale`, decided by the shape and a name."""
    generator = torch.Generator().manual_seed(stable_seed(0, name=name))
    return torch.randn(*shape, generator=generator, dtype=torch.float64) * scale


def tokens_of(architecture: Architecture, *, batch: int = 2) -> Tensor:
    """tokens_BT of a full context, no token twice in a sequence where the vocabulary suffices."""
    generator = torch.Generator().manual_seed(stable_seed(0, name="tokens"))
    repeats = -(-architecture.context // architecture.vocabulary)
    rows = [
        torch.cat([torch.randperm(architecture.vocabulary, generator=generator) for _ in range(repeats)])
        for _ in range(batch)
    ]
    return torch.stack(rows)[:, : architecture.context]


def network_of(architecture: Architecture) -> Network:
    """The network with its first weights, in float64, without dropout."""
    return build(architecture, seed=0, dtype=torch.float64).eval()


def block_of(network: Network, *, layer: int = 0) -> Any:
    """One block; its parts go by the names that its kind gives them."""
    return network.blocks[layer]


def attention_of(network: Network, *, layer: int = 0) -> Any:
    """The attention part of a block; raises AttributeError further on when the slot holds none."""
    return block_of(network, layer=layer).attention


def run(network: Network, x_BTD: Tensor) -> Tensor:
    """The embedded stream x_BTD through all blocks and the final norm."""
    for layer in range(len(network.blocks)):
        x_BTD = block_of(network, layer=layer)(x_BTD)
    return network.norm(x_BTD)


def in_heads(x_BTD: Tensor, *, num_heads: int) -> Tensor:
    """x_BTD cut into heads, x_BHTK."""
    return x_BTD.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def joined(x_BHTK: Tensor) -> Tensor:
    """Heads side by side again, x_BTD."""
    return x_BHTK.transpose(1, 2).flatten(2)


def causal_TT(num_tokens: int) -> Tensor:
    """True where a query sees a key: on and under the diagonal."""
    return torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril()


def weights_BHTT(query_BHTK: Tensor, key_BHTK: Tensor, *, causal: bool) -> Tensor:
    """softmax(Q K^T / sqrt(K)) (Vaswani et al. 2017, equation 1), written out."""
    scores_BHTT = query_BHTK @ key_BHTK.transpose(-1, -2) / query_BHTK.shape[-1] ** 0.5
    if causal:
        scores_BHTT = scores_BHTT.masked_fill(~causal_TT(scores_BHTT.shape[-1]), -torch.inf)
    return scores_BHTT.softmax(-1)


class outputs_of:
    """While entered, what the named modules return: `seen[name]`, newest last."""

    def __init__(self, modules: dict[str, nn.Module]) -> None:
        self.modules = modules
        self.seen: dict[str, list[Tensor]] = {name: [] for name in modules}

    def __enter__(self) -> dict[str, list[Tensor]]:
        self.handles = [module.register_forward_hook(self._keep(name)) for name, module in self.modules.items()]
        return self.seen

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()

    def _keep(self, name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        def keep(_: nn.Module, __: Any, output: Tensor) -> None:
            self.seen[name].append(output)

        return keep
