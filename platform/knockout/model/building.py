"""The way from a declaration to its network."""

from __future__ import annotations

import torch

from knockout.declare import parts as declared
from knockout.declare.architecture import Architecture
from knockout.model.encoder_decoder import EncoderDecoder
from knockout.model.initialise import initialise
from knockout.model.network import Network


def build(architecture: Architecture, *, seed: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Network:
    """A network with its first weights, decided by `architecture` and `seed` alone; on "meta" without."""
    if device == "meta":
        with torch.device("meta"):
            return _assemble(architecture).to(dtype=dtype)
    network = _assemble(architecture)
    initialise(network, architecture=architecture, seed=seed)
    return network.to(device=device, dtype=dtype)


def _assemble(architecture: Architecture) -> Network:
    match architecture.skeleton:
        case declared.DecoderSkeleton() | declared.EncoderSkeleton():
            return Network(architecture)
        case declared.EncoderDecoderSkeleton():
            return EncoderDecoder(architecture)
