"""The parts of a network, one slot a file: every kind that a slot can hold, and the slot as their union.

A new kind is a class in its slot's file and a member of its union, a case in the slot's builder in `model/`, and its closed
form in `account/`.
"""

from knockout.declare.parts.attention import (
    Attention,
    GroupedAttention,
    MultiHeadAttention,
    NoAttention,
    SingleHeadAttention,
)
from knockout.declare.parts.embedding import Embedding, LearnedEmbedding
from knockout.declare.parts.feed_forward import (
    Activation,
    FeedForward,
    GeluFeedForward,
    HiddenWidth,
    LinearFeedForward,
    MoeFeedForward,
    NoFeedForward,
    ReluFeedForward,
    SwigluFeedForward,
)
from knockout.declare.parts.head import Head, TiedHead, UntiedHead
from knockout.declare.parts.init import Gpt2Init, Init
from knockout.declare.parts.norm import LayerNorm, NoNorm, Norm, Placement, RmsNorm
from knockout.declare.parts.position import LearnedPosition, NoPosition, Position, RotaryPosition, SinusoidalPosition
from knockout.declare.parts.residual import NoResidual, PlainResidual, Residual

__all__ = [
    "Activation",
    "Attention",
    "Embedding",
    "FeedForward",
    "GeluFeedForward",
    "Gpt2Init",
    "GroupedAttention",
    "Head",
    "HiddenWidth",
    "Init",
    "LayerNorm",
    "LearnedEmbedding",
    "LearnedPosition",
    "LinearFeedForward",
    "MoeFeedForward",
    "MultiHeadAttention",
    "NoAttention",
    "NoFeedForward",
    "NoNorm",
    "NoPosition",
    "NoResidual",
    "Norm",
    "Placement",
    "PlainResidual",
    "Position",
    "ReluFeedForward",
    "Residual",
    "RmsNorm",
    "RotaryPosition",
    "SingleHeadAttention",
    "SinusoidalPosition",
    "SwigluFeedForward",
    "TiedHead",
    "UntiedHead",
]
