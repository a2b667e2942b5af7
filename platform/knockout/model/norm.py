"""Normalisation of every token, and where a block applies it.

The invariant: a slot without normalisation is an identity with no parameters.
"""

from __future__ import annotations

from torch import nn

from knockout.declare import parts as declared
from knockout.declare.architecture import Architecture


def build_norm(architecture: Architecture) -> nn.Module:
    """One fresh norm of the declared kind, over the width."""
    match architecture.norm:
        case declared.LayerNorm(eps=eps):
            return nn.LayerNorm(architecture.width, eps=eps, bias=architecture.bias)
        case declared.RmsNorm(eps=eps):
            return nn.RMSNorm(architecture.width, eps=eps)
        case declared.NoNorm():
            return nn.Identity()


def build_final_norm(architecture: Architecture) -> nn.Module:
    """The norm before the head: for pre placement only, where no block has normalised its output."""
    match architecture.norm:
        case declared.NoNorm() | declared.LayerNorm(placement="post") | declared.RmsNorm(placement="post"):
            return nn.Identity()
        case _:
            return build_norm(architecture)
