"""How a network's mixtures share their work among their experts, over all windows of an exam.

The invariant: it counts what the exam computes anyhow, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from torch import nn

from knockout.model import Network
from knockout.model.mixture import MixtureOfExperts, Routing

STACKS = {"blocks": "block", "encoder": "encoder"}
"""How the layers of a network's stacks are called in metrics."""


@dataclass
class CountedRouting:
    """What each mixture's router did so far, by the name of its layer: `block.03`."""

    layers: dict[str, Routing] = field(default_factory=dict)

    def metrics(self) -> dict[str, float]:
        """Entropy and largest load of each mixture, their mean and their maximum; nothing without a mixture.

        `routing_entropy` is in nats, `expert_load_max` in units of an even share: `model.mixture.Routing` has both.
        """
        if not self.layers:
            return {}
        entropies = {name: layer.entropy.item() for name, layer in self.layers.items()}
        loads = {name: layer.load_max.item() for name, layer in self.layers.items()}
        return {
            **{f"routing_entropy/{name}": value for name, value in entropies.items()},
            **{f"expert_load_max/{name}": value for name, value in loads.items()},
            "routing_entropy": sum(entropies.values()) / len(entropies),
            "expert_load_max": max(loads.values()),
        }


@contextmanager
def counted_routing(network: Network) -> Iterator[CountedRouting]:
    """Count what the routers do in every forward pass until the end."""
    counted = CountedRouting()
    hooks = [
        module.register_forward_hook(partial(_count, counted=counted, layer=_layer(name)))
        for name, module in network.named_modules()
        if isinstance(module, MixtureOfExperts)
    ]
    try:
        yield counted
    finally:
        for hook in hooks:
            hook.remove()


def _count(module: nn.Module, _inputs: object, _output: object, *, counted: CountedRouting, layer: str) -> None:
    assert isinstance(module, MixtureOfExperts)
    assert module.routing is not None
    before = counted.layers.get(layer)
    counted.layers[layer] = module.routing if before is None else before + module.routing


def _layer(name: str) -> str:
    """`block.03` of `blocks.3.ffn`."""
    stack, index = name.split(".")[:2]
    return f"{STACKS[stack]}.{int(index):02d}"
