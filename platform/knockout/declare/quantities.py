"""What can be counted, and in which units a document can print it.

The invariant: a quantity has one dimension; numbers of different dimensions are never added, and bytes
are printed in units of their own.
"""

from __future__ import annotations

from typing import Literal

Quantity = Literal[
    "parameters.total",
    "parameters.active",
    "parameters.embedding",
    "parameters.position",
    "parameters.attention",
    "parameters.feed_forward",
    "parameters.norm",
    "parameters.head",
    "layer.total",
    "layer.active",
    "layer.attention",
    "layer.feed_forward",
    "layer.norm",
    "layers.total",
    "layers.norm",
    "flops_per_token.forward",
    "flops_per_token.training",
    "kv_cache.bytes_per_token",
    "kv_cache.bytes",
    "bytes.weights",
    "bytes.optimizer",
    "numbers.weights",
    "numbers.gradients",
    "numbers.moments",
    "heads.width",
]
"""What can be counted. `layer` is the last block, `layers` all blocks together; `numbers` are those that training with
Adam keeps; bytes are at 2 a number (float16), Adam's moments at 4."""

Unit = Literal["one", "%", "K", "M", "B", "MB", "GB", "MiB", "GiB"]
"""Units of printed numbers. K, M and B are thousand, million and billion; MB and GB are decimal, MiB and GiB binary."""

UNITS: dict[Unit, float] = {
    "one": 1,
    "%": 0.01,
    "K": 1e3,
    "M": 1e6,
    "B": 1e9,
    "MB": 1e6,
    "GB": 1e9,
    "MiB": 2**20,
    "GiB": 2**30,
}

Dimension = Literal["numbers", "FLOPs a token", "bytes", "bytes a token", "units"]

DIMENSIONS: dict[str, Dimension] = {
    "parameters": "numbers",
    "layer": "numbers",
    "layers": "numbers",
    "numbers": "numbers",
    "flops_per_token": "FLOPs a token",
    "kv_cache.bytes_per_token": "bytes a token",
    "kv_cache": "bytes",
    "bytes": "bytes",
    "heads": "units",
}
"""Of a quantity, or of its group."""

PURE: tuple[Unit, ...] = ("one", "K", "M", "B")
BYTES: tuple[Unit, ...] = ("one", "MB", "GB", "MiB", "GiB")
SHARES: tuple[Unit, ...] = ("one", "%")
"""Units of a number over another one."""


def dimension(quantity: Quantity) -> Dimension:
    """What a quantity is a number of."""
    return DIMENSIONS.get(quantity) or DIMENSIONS[quantity.partition(".")[0]]


def units_of(quantity: Quantity) -> tuple[Unit, ...]:
    """The units that a quantity can be printed in."""
    return BYTES if dimension(quantity).startswith("bytes") else PURE
