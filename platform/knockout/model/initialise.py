"""What the weights are before training.

The invariant: a parameter's first value depends on the seed, its name, its shape and the declared scheme
alone, never on the order of construction, the device or the dtype. So parts that two variants share start
equal, bit for bit, and the global random generators stay as they were.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor, nn

from knockout.declare import parts as declared
from knockout.declare.architecture import Architecture

BRANCH_ENDS = frozenset({"output", "down"})
"""Names of the last map of a branch, whose result is added to the residual stream."""


def stable_seed(seed: int, *, name: str) -> int:
    """A 63-bit seed for one purpose: the head of SHA-256 over `seed:name`."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def initialise(network: nn.Module, *, architecture: Architecture, seed: int) -> None:
    """Fill every parameter of `network` in place."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(first_value(name, shape=parameter.shape, architecture=architecture, seed=seed))


def first_value(name: str, *, shape: torch.Size, architecture: Architecture, seed: int) -> Tensor:
    """The float32 value, on the CPU, that the parameter `name` has before training."""
    match architecture.init:
        case declared.Gpt2Init(std=std):
            return _gpt2(name, shape=shape, std=std, depth=architecture.depth, seed=seed)


def _gpt2(name: str, *, shape: torch.Size, std: float, depth: int, seed: int) -> Tensor:
    # Radford et al. 2019, section 2.3, and OpenAI's gpt-2/src/model.py (0.02); a block adds to it twice.
    *_, part, leaf = name.split(".")
    if leaf == "bias":
        return torch.zeros(shape)
    if part.endswith("norm"):
        return torch.ones(shape)
    scale = std / math.sqrt(2 * depth) if part in BRANCH_ENDS else std
    generator = torch.Generator().manual_seed(stable_seed(seed, name=name))
    return torch.randn(shape, generator=generator) * scale
