"""What the quantities of counted claims are: their names in words, and where an account holds them.

The invariant: every member of `declare.calculation.Quantity` has a name here and is read by `read`.
"""

from __future__ import annotations

from knockout.account import Account, count
from knockout.declare.architecture import Architecture, head_layout
from knockout.declare.quantities import Quantity

MOMENT_BYTES = 4
"""Adam's moments are counted as float32."""

NAMES: dict[Quantity, str] = {
    "parameters.total": "all parameters",
    "parameters.active": "parameters active on a token",
    "parameters.embedding": "embedding parameters",
    "parameters.position": "position parameters",
    "parameters.attention": "attention parameters",
    "parameters.feed_forward": "feed-forward parameters",
    "parameters.norm": "norm parameters",
    "parameters.head": "head parameters",
    "layer.total": "parameters of a layer",
    "layer.active": "parameters of a layer active on a token",
    "layer.attention": "attention parameters of a layer",
    "layer.feed_forward": "feed-forward parameters of a layer",
    "layer.norm": "norm parameters of a layer",
    "layers.total": "parameters of all layers",
    "layers.norm": "norm parameters of all layers",
    "flops_per_token.forward": "FLOPs a token forward",
    "flops_per_token.training": "FLOPs a token in training",
    "kv_cache.bytes_per_token": "KV-cache bytes a token",
    "kv_cache.bytes": "KV-cache bytes",
    "bytes.weights": "bytes of weights",
    "bytes.optimizer": "bytes of Adam's moments",
    "numbers.weights": "weights",
    "numbers.gradients": "gradients",
    "numbers.moments": "moments",
    "heads.width": "width of a head",
}

AT_THE_CONTEXT = ("kv_cache.bytes", "flops_per_token.forward", "flops_per_token.training")
"""Quantities that depend on the context."""


def measure(architecture: Architecture, *, quantity: Quantity, context: int | None = None) -> int:
    """One quantity of an architecture, a whole number in its base unit (1, bytes, FLOPs)."""
    return read(count(architecture, context=context), architecture=architecture, quantity=quantity)


def read(account: Account, *, architecture: Architecture, quantity: Quantity) -> int:
    """One quantity of an architecture from its account."""
    group, _, name = quantity.partition(".")
    match group:
        case "layer":
            return sum(getattr(layer, name) for layer in account.per_layer[-1:])
        case "layers":
            return sum(getattr(layer, name) for layer in account.per_layer)
        case "numbers":
            return account.bytes.optimizer // MOMENT_BYTES if name == "moments" else account.parameters.total
        case "heads":
            layout = head_layout(architecture)
            return 0 if layout is None else layout.head_width
        case _:
            return getattr(getattr(account, group), name)


def composition(account: Account, *, quantity: Quantity, total: int) -> str:
    """How a sum over equal layers comes about: ` = 96 × 49,152 + 24,576`; nothing for other quantities."""
    group, _, name = quantity.partition(".")
    layers = [getattr(layer, name, 0) for layer in account.per_layer]
    if group not in ("parameters", "layers") or name == "total" or len(set(layers)) != 1 or not layers[0]:
        return ""
    rest = total - len(layers) * layers[0]
    return f" = {len(layers)} × {layers[0]:,}{f' + {rest:,}' if rest else ''}"
