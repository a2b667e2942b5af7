"""The attention slot: from the declared kind to its module."""

from __future__ import annotations

from typing import Any

from knockout.declare import parts as declared
from knockout.declare.architecture import Architecture, head_layout
from knockout.declare.parts.attention import HeadScores, ScoreScale
from knockout.model.attention_heads import Attention
from knockout.model.attention_latent import LatentAttention
from knockout.model.attention_linear import LinearAttention
from knockout.model.attention_shared import SharedAttention
from knockout.model.head_position import HeadPosition
from knockout.model.mixer import TokenMixer
from knockout.model.recurrent import build_recurrent
from knockout.model.retention import Retention
from knockout.model.scores import Prefix, ScoreRule
from knockout.model.state_space import SelectiveSsm


def build_attention(
    architecture: Architecture, *, position: HeadPosition, prefix: Prefix | None = None
) -> TokenMixer[Any] | None:
    """The declared token mixer, or None where there is none.

    `position` acts on queries, keys and scores; `prefix` says which tokens are seen in spite of a causal mask.
    """
    width, bias = architecture.width, architecture.bias
    match architecture.attention:
        case declared.NoAttention():
            return None
        case declared.LinearAttention(causal=causal, chunk=chunk):
            heads = architecture.heads
            return LinearAttention(width, num_heads=heads, causal=causal, chunk=chunk, bias=bias, position=position)
        case declared.CellMixer() as mixer:
            return build_recurrent(mixer, width=width, bias=bias)
        case declared.SelectiveSsmMixer() as mixer:
            return SelectiveSsm(mixer, width=width, bias=bias)
        case declared.RetentionMixer() as mixer:
            return Retention(mixer, width=width, num_heads=architecture.heads, bias=bias, position=position)
        case declared.LatentAttention() | HeadScores() as scored:
            return _build_scored(architecture, scored=scored, position=position, prefix=prefix)


def _build_scored(
    architecture: Architecture,
    *,
    scored: declared.LatentAttention | HeadScores,
    position: HeadPosition,
    prefix: Prefix | None,
) -> TokenMixer[Any]:
    width, layout = architecture.width, head_layout(architecture)
    assert layout is not None, "attention with scores has heads"
    rule = ScoreRule(
        causal=architecture.attention.causal,
        scale=score_scale(scored.scale, key_width=layout.head_width) * position.score_factor,
        window=scored.window if isinstance(scored, declared.WindowAttention) else None,
        explicit=scored.computation == "explicit",
        prefix=prefix,
    )
    common: dict[str, Any] = {
        "rule": rule,
        "bias": architecture.bias,
        "dropout": architecture.dropout,
        "position": position,
    }
    match scored:
        case declared.LatentAttention():
            return LatentAttention(width, declared=scored, num_heads=layout.num_heads, **common)
        case declared.SharedQkvAttention():
            return SharedAttention(width, num_heads=layout.num_heads, qk_norm=scored.qk_norm, **common)
        case HeadScores():
            return Attention(width, layout=layout, qk_norm=scored.qk_norm, **common)


def score_scale(scale: ScoreScale, *, key_width: int) -> float:
    """The factor of the scores (Vaswani et al. 2017, section 3.2.1)."""
    match scale:
        case "inverse_sqrt":
            return key_width**-0.5
        case "none":
            return 1.0
        case _:
            return scale
