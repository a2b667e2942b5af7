"""What the weights are before training, and how fast each of them learns.

The invariant: a parameter's first value depends on the seed, its name, its shape and the declared scheme
alone, never on the order of construction, the device or the dtype. So parts that two variants share start
equal, bit for bit, and the global random generators stay as they were.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from knockout.declare import parts as declared
from knockout.declare.architecture import Architecture, at_layer

BRANCH_ENDS = frozenset({"output", "down"})
"""Names of the last map of a branch, whose result is added to the residual stream."""
READING_MAPS = frozenset({"value", "shared", "output"})
"""Maps outside the feed-forward part that DeepNorm and T-Fixup make smaller with depth: the values' and the last. Where one
map makes queries, keys and values, it is made smaller as a whole; of a recurrent mixer, whose papers know no such scale, the
last map alone. In latent attention also the values' rows of `kv_up`."""
FEEDING_MAPS = frozenset({"up", "gate", "down"})
"""Maps of the feed-forward part that they make smaller: all but a router."""
TABLES = frozenset({"embedding", "position"})
"""What a row is looked up in."""
READOUTS = frozenset({"router", "selection"})
"""Maps from the width to a number of units that does not grow with it."""


@runtime_checkable
class OwnStart(Protocol):
    """A part whose numbers have a meaning of their own: a decay rate, a gate, a recurrent matrix."""

    def first_value(self, name: str, *, generator: torch.Generator) -> Tensor | None:
        """What its parameter `name` is before training; None where the declared scheme decides."""
        ...


@dataclass(frozen=True)
class Parameter:
    """What a scheme knows of a parameter."""

    name: str
    shape: tuple[int, ...]

    @property
    def part(self) -> str:
        """The part that holds it: `query`, `ffn_norm`, `embedding`."""
        return self.name.split(".")[-2]

    @property
    def in_block(self) -> bool:
        """True for what stands in a block, of either stack, False for tables and the head."""
        return self.name.startswith(("blocks.", "encoder."))

    @property
    def fans(self) -> tuple[int, int]:
        """Inputs and outputs of a map (of each expert's, in a mixture); for a table, its rows and its width."""
        return self.shape[-1], self.shape[-2]


Deviation = Callable[[Parameter], float | Tensor]
"""The standard deviation of a parameter's normal first values, or of each of its rows."""


def stable_seed(seed: int, *, name: str) -> int:
    """A 63-bit seed for one purpose: the head of SHA-256 over `seed:name`."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def initialise(network: nn.Module, *, architecture: Architecture, seed: int) -> None:
    """Fill every parameter of `network` in place."""
    with torch.no_grad():
        for path, module in network.named_modules():
            for leaf, parameter in module.named_parameters(recurse=False):
                name = f"{path}.{leaf}"
                generator = torch.Generator().manual_seed(stable_seed(seed, name=name))
                own = module.first_value(leaf, generator=generator) if isinstance(module, OwnStart) else None
                found = Parameter(name, tuple(parameter.shape))
                parameter.copy_(_by_scheme(found, architecture=architecture, generator=generator) if own is None else own)


def logit_factor(architecture: Architecture) -> float:
    """What logits are multiplied by: 1, and under muP base width / width (Yang et al. 2022, table 8)."""
    match architecture.init:
        case declared.MupInit(base_width=base_width):
            return base_width / architecture.width
        case _:
            return 1.0


@dataclass(frozen=True)
class Learning:
    """How the optimiser treats a parameter."""

    rate_factor: float
    """Its learning rate over the recipe's."""
    decays: bool
    """Whether weight decay draws it to 0."""


def learning_of(network: nn.Module, *, architecture: Architecture) -> dict[str, Learning]:
    """How each trained parameter of `network` learns, by name.

    Weights of maps and tables decay; biases, gains and rates do not. Under muP with Adam, maps from width to width learn
    at base width / width of the rate (Yang et al. 2022, table 8), and so do maps from the width to a fixed number of units
    (table 3, whose smaller first weights stand in for the factor that the logits have).
    """
    found = {}
    for path, module in network.named_modules():
        for leaf, parameter in module.named_parameters(recurse=False):
            if not parameter.requires_grad:
                continue
            name = f"{path}.{leaf}"
            known = Parameter(name, tuple(parameter.shape))
            factor = logit_factor(architecture) if _is_map(known) else 1.0
            found[name] = Learning(factor, decays=parameter.ndim >= 2 and leaf.startswith("weight"))
    return found


def _by_scheme(parameter: Parameter, *, architecture: Architecture, generator: torch.Generator) -> Tensor:
    """The float32 value, on the CPU, that a parameter has before training."""
    leaf = parameter.name.rpartition(".")[2]
    if leaf.startswith("bias"):
        return torch.zeros(parameter.shape)
    if parameter.part.endswith("norm"):
        return torch.ones(parameter.shape)
    deviation = _deviation(parameter, architecture=architecture)
    return torch.randn(parameter.shape, generator=generator) * deviation(parameter)


def _deviation(parameter: Parameter, *, architecture: Architecture) -> Deviation:
    width, depth = architecture.width, _pairs_of_branches(parameter, architecture=architecture)
    if parameter.in_block:
        architecture = at_layer(architecture, layer=int(parameter.name.split(".")[1]))
        if isinstance(architecture.residual, declared.DeepnormResidual):
            return partial(_xavier, gain=declared.deepnorm_beta(depth=architecture.depth), layer=architecture)
    match architecture.init:
        case declared.Gpt2Init(std=std):
            return partial(_gpt2, std=std, depth=depth)
        case declared.SmallInit():
            return lambda _: math.sqrt(2 / (5 * width))
        case declared.DepthScaledInit():
            return partial(_t_fixup, depth=depth, layer=architecture)
        case declared.MupInit(std=std, base_width=base_width):
            return partial(_mup, std=std, depth=depth, ratio=width / base_width)


def _pairs_of_branches(parameter: Parameter, *, architecture: Architecture) -> float:
    """Half as many as are added to the stream that the parameter's block adds to: the depth, where a block has two."""
    match architecture.skeleton:
        case declared.EncoderDecoderSkeleton(encoder_depth=encoder_depth):
            return encoder_depth if parameter.name.startswith("encoder.") else 1.5 * architecture.depth
        case _:
            return architecture.depth


def _gpt2(parameter: Parameter, *, std: float, depth: float) -> float:
    # Radford et al. 2019, section 2.3, and OpenAI's gpt-2/src/model.py (0.02); a block adds to it twice.
    return std / math.sqrt(2 * depth) if parameter.part in BRANCH_ENDS else std


def _xavier(parameter: Parameter, *, gain: float, layer: Architecture) -> float | Tensor:
    # Glorot & Bengio 2010, equation 16 for normal weights.
    inputs, outputs = parameter.fans
    return math.sqrt(2 / (inputs + outputs)) * _gain(parameter, gain=gain, layer=layer)


def _gain(parameter: Parameter, *, gain: float, layer: Architecture) -> float | Tensor:
    """`gain` for maps that are made smaller with depth, 1 for others; a factor a row where a map holds both."""
    if ".ffn." in parameter.name:
        return gain if parameter.part in FEEDING_MAPS else 1.0
    match layer.attention:
        case declared.LatentAttention(nope_width=nope_width, value_width=value_width) if parameter.part == "kv_up":
            gains_U = torch.cat((torch.ones(nope_width), torch.full((value_width,), gain)))
            return gains_U.repeat(layer.heads).unsqueeze(1)
        case _:
            return gain if parameter.part in READING_MAPS else 1.0


def _t_fixup(parameter: Parameter, *, depth: float, layer: Architecture) -> float | Tensor:
    # Huang et al. 2020, section 3.2: the table as in their decoders and encoders, the blocks as in their encoders.
    if parameter.part in TABLES:
        return layer.width**-0.5 * (9 * max(depth, 1)) ** -0.25
    return _xavier(parameter, gain=0.67 * max(depth, 1) ** -0.25, layer=layer)


def _mup(parameter: Parameter, *, std: float, depth: float, ratio: float) -> float:
    # Yang et al. 2022, table 8: variance 1/width for maps from width to width, constant for tables and the head.
    base = _gpt2(parameter, std=std, depth=depth)
    if parameter.part in READOUTS:
        return base / ratio
    return base / math.sqrt(ratio) if _is_map(parameter) else base


def _is_map(parameter: Parameter) -> bool:
    """True for the weights of a map in a block, whose inputs grow with the width."""
    leaf = parameter.name.rpartition(".")[2]
    return parameter.in_block and len(parameter.shape) >= 2 and leaf.startswith("weight") and parameter.shape[-2] > 1
