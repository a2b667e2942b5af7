"""What a network must have for a property to say anything of it.

The invariant: where every requirement is met, the property's function runs, and it could come out either way; a claim that
would hold of any network, or that asks for a part that is not there, is refused when it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from knockout.declare.architecture import Architecture, at_layer, distinct_layers
from knockout.declare.parts import (
    DecoderSkeleton,
    GroupedAttention,
    LatentAttention,
    LayerNorm,
    LearnedEmbedding,
    LinearAttention,
    MoeFeedForward,
    MultiHeadAttention,
    NextTokenObjective,
    NoAttention,
    NoFeedForward,
    PlacedNorm,
    RezeroResidual,
    RmsNorm,
    RotaryPosition,
    SerialBlock,
    SharedQkvAttention,
    SingleHeadAttention,
    SwigluFeedForward,
    TiedHead,
    WindowAttention,
    is_gated,
)
from knockout.declare.parts.attention import HeadScores
from knockout.declare.properties import Property


@dataclass(frozen=True)
class Requirement:
    """`needs` what, whether an architecture has it, and what it has instead."""

    needs: str
    met: Callable[[Architecture], bool]
    found: Callable[[Architecture], str]


def unmet(name: Property, *, architecture: Architecture) -> Iterator[str]:
    """What a property needs and does not find, a sentence each."""
    for requirement in REQUIREMENTS[name]:
        if not requirement.met(architecture):
            yield f"{name} needs {requirement.needs}, and {requirement.found(architecture)}"


def _at_least(field: str, least: int, *, why: str) -> Requirement:
    def found(a: Architecture) -> str:
        return f"{field} is {getattr(a, field)}"

    return Requirement(f"{field} {least} or more ({why})", lambda a: getattr(a, field) >= least, found)


def _attention(*kinds: type, words: str) -> Requirement:
    return Requirement(words, lambda a: isinstance(_first(a).attention, kinds), _attention_found)


def _norm(*kinds: type, words: str) -> Requirement:
    return Requirement(words, lambda a: isinstance(_first(a).norm, kinds), lambda a: f"norm is {_first(a).norm.kind}")


def _ffn(met: Callable[[Architecture], bool], *, words: str) -> Requirement:
    return Requirement(words, lambda a: met(_first(a)), lambda a: f"ffn is {_first(a).ffn.kind}")


def _first(a: Architecture) -> Architecture:
    return at_layer(a, layer=0)


def _attention_found(a: Architecture) -> str:
    return f"attention is {_first(a).attention.kind}"


def _reads(a: Architecture) -> bool:
    return a.depth > 0 and any(not isinstance(layer.attention, NoAttention) for layer in distinct_layers(a))


def _has_two_maps(a: Architecture) -> bool:
    return not isinstance(a.ffn, NoFeedForward | MoeFeedForward) and not is_gated(a.ffn)


def _plain_scores(a: Architecture) -> bool:
    attention = _first(a).attention
    return (
        isinstance(attention, MultiHeadAttention)
        and (attention.qk_norm, attention.scale) == ("none", "inverse_sqrt")
        and a.position.kind not in ("rotary", "alibi")
    )


def _scores_found(a: Architecture) -> str:
    attention = _first(a).attention
    settings = [f"{key} {getattr(attention, key)}" for key in ("scale", "qk_norm") if hasattr(attention, key)]
    return f"{_attention_found(a)} ({', '.join([*settings, f'position {a.position.kind}'])})"


ONE_STACK = (
    Requirement("one stack", lambda a: isinstance(a.skeleton, DecoderSkeleton), lambda a: f"skeleton is {a.skeleton.kind}"),
    Requirement(
        "the next token as objective",
        lambda a: isinstance(a.objective, NextTokenObjective),
        lambda a: f"objective is {a.objective.kind}",
    ),
    _at_least("depth", 1, why="there must be a block"),
)
OPEN = Requirement(
    "a stream that branches join from the start",
    lambda a: not any(isinstance(layer.residual, RezeroResidual) for layer in distinct_layers(a)),
    lambda a: "rezero's gates are closed before training",
)
ALIKE = Requirement(
    "layers that are all alike",
    lambda a: len(distinct_layers(a)) == 1,
    lambda a: f"there are {len(distinct_layers(a))} kinds",
)
READS = Requirement(
    "tokens that read one another",
    _reads,
    lambda a: "attention is none in every layer" if a.depth else "there is no layer",
)
BRANCH = Requirement(
    "a branch in every layer",
    lambda a: all(
        not (isinstance(layer.attention, NoAttention) and isinstance(layer.ffn, NoFeedForward))
        for layer in distinct_layers(a)
    ),
    lambda a: "both attention and ffn are none",
)
CAUSAL = Requirement("the causal mask", lambda a: a.causal, lambda a: "attention sees later tokens")
SEVERAL = _at_least("context", 2, why="one token has no other to read")
DISTINCT = Requirement(
    "a context of 3 different tokens or more",
    lambda a: 3 <= a.context <= a.vocabulary,
    lambda a: f"context is {a.context}, vocabulary {a.vocabulary}",
)
ROTARY = Requirement(
    "rotary positions", lambda a: isinstance(a.position, RotaryPosition), lambda a: f"position is {a.position.kind}"
)
ADDED = Requirement(
    "positions that do not act inside the heads",
    lambda a: a.position.kind not in ("rotary", "alibi"),
    lambda a: f"position is {a.position.kind}",
)
HEADS = _attention(
    MultiHeadAttention, GroupedAttention, SharedQkvAttention, WindowAttention, words="heads of width / heads units each"
)
MAPS = _attention(MultiHeadAttention, GroupedAttention, words="attention with maps for queries, keys and values in heads")
KEYS = _attention(
    MultiHeadAttention,
    SingleHeadAttention,
    GroupedAttention,
    WindowAttention,
    words="attention with maps for keys and values in every layer",
)
WEIGHTS = _attention(HeadScores, LatentAttention, LinearAttention, words="attention with weights")
PLAIN = Requirement("multi-head attention with plain scaled scores", _plain_scores, _scores_found)
MULTI_HEAD = _attention(MultiHeadAttention, words="multi-head attention")
SEVERAL_HEADS = _at_least("heads", 2, why="one head is the wide head")
EVEN = Requirement("an even width", lambda a: a.width % 2 == 0, lambda a: f"width is {a.width}")
WIDE = _at_least("width", 2, why="a mean over one unit is that unit")
NORM_BEFORE_ATTENTION = Requirement(
    "a serial block with attention, whose norm is looked at",
    lambda a: isinstance(_first(a).block, SerialBlock) and not isinstance(_first(a).attention, NoAttention),
    lambda a: f"block is {_first(a).block.kind}, attention {_first(a).attention.kind}",
)
LAYER_NORM = _norm(LayerNorm, words="layer norm")
TABLE = Requirement(
    "a learned embedding",
    lambda a: isinstance(a.embedding, LearnedEmbedding),
    lambda a: f"embedding is {a.embedding.kind}",
)
TIED = Requirement("a tied head", lambda a: isinstance(a.head, TiedHead), lambda a: f"head is {a.head.kind}")
SOME_FFN = _ffn(lambda a: not isinstance(a.ffn, NoFeedForward), words="a feed-forward part")
TWO_MAPS = _ffn(_has_two_maps, words="a feed-forward part of two maps")
SWIGLU = _ffn(lambda a: isinstance(a.ffn, SwigluFeedForward), words="SwiGLU")
NO_BIAS = Requirement("maps without biases", lambda a: not a.bias, lambda a: "bias is true")
CHOICE = _at_least("vocabulary", 2, why="one token is no choice")
MEMORY = (*ONE_STACK, TWO_MAPS, NO_BIAS)
DEEPNORM = (WIDE, _at_least("depth", 1, why="α of no layers is 0"))
STREAM = (*ONE_STACK, ALIKE, BRANCH, OPEN)
ORDER = (*ONE_STACK, DISTINCT, READS, OPEN)

REQUIREMENTS: dict[Property, tuple[Requirement, ...]] = {
    "sinusoidal_shift_is_linear": (EVEN,),
    "sinusoidal_wavelength_falls": (EVEN, _at_least("width", 4, why="one pair has one wavelength")),
    "sinusoidal_is_bounded": (EVEN,),
    "rotary_scores_follow_the_offset": (ROTARY, HEADS, SEVERAL),
    "rotary_scores_fall_with_distance": (ROTARY, HEADS, SEVERAL),
    "order_only_permutes_outputs": ORDER,
    "order_leaves_scores_unchanged": (*ONE_STACK, DISTINCT, MULTI_HEAD, ADDED),
    "order_leaves_the_last_output_unchanged": ORDER,
    "rows_are_distributions": (*ONE_STACK, MAPS),
    "keys_come_from_the_key_map": (*ONE_STACK, PLAIN, SEVERAL),
    "keys_come_from_the_value_map": (*ONE_STACK, PLAIN, SEVERAL),
    "scaling_keeps_the_gradient": (HEADS,),
    "heads_equal_one_wide_head": (*ONE_STACK, PLAIN, SEVERAL_HEADS, SEVERAL),
    "heads_differ_by_the_output_map": (*ONE_STACK, PLAIN, SEVERAL_HEADS, SEVERAL),
    "later_tokens_do_not_matter": (READS, OPEN, SEVERAL, CHOICE),
    "every_head_scores_all_pairs": (*ONE_STACK, MAPS),
    "flash_equals_explicit": (HEADS,),
    "stream_sums_the_increments": (*ONE_STACK, BRANCH),
    "stream_is_linear": STREAM,
    "attention_is_linear": (*ONE_STACK, WEIGHTS, SEVERAL),
    "attention_is_linear_in_its_values": (*ONE_STACK, PLAIN),
    "norm_is_linear": (*ONE_STACK, NORM_BEFORE_ATTENTION, _norm(PlacedNorm, words="layer norm or RMSNorm")),
    "cached_equals_recomputed": (*ONE_STACK, READS, OPEN, CAUSAL, SEVERAL),
    "past_keys_and_values_stay": (*ONE_STACK, ALIKE, KEYS, SEVERAL),
    "past_queries_are_not_needed": (*ONE_STACK, PLAIN, SEVERAL),
    "neighbours_read_layer_inputs": (
        *STREAM,
        _at_least("depth", 2, why="what is read shows a layer later"),
        READS,
        DISTINCT,
    ),
    "layer_norm_standardises": (*ONE_STACK, NORM_BEFORE_ATTENTION, LAYER_NORM, WIDE),
    "layer_norm_standardises_the_table": (*ONE_STACK, NORM_BEFORE_ATTENTION, LAYER_NORM, WIDE, TABLE),
    "rms_norm_divides_by_the_root_mean_square": (*ONE_STACK, NORM_BEFORE_ATTENTION, _norm(RmsNorm, words="RMSNorm")),
    "rms_norm_is_layer_norm_without_centring": (WIDE,),
    "rms_norm_divides_by_the_deviation": (WIDE,),
    "deepnorm_scales_the_branch": DEEPNORM,
    "deepnorm_scales_the_branch_then_norms": DEEPNORM,
    "deepnorm_scales_the_stream_then_norms": DEEPNORM,
    "two_maps_are_one": (*ONE_STACK, TWO_MAPS),
    "feed_forward_is_local": (*ONE_STACK, SOME_FFN, SEVERAL),
    "swiglu_gates_with_either_factor": (*ONE_STACK, SWIGLU),
    "swiglu_gates_with_the_second_map": (*ONE_STACK, SWIGLU),
    "memory_of_columns_and_rows": MEMORY,
    "memory_of_columns_and_rows_from_the_left": MEMORY,
    "argmax_passes_a_gradient": (CHOICE,),
    "softmax_passes_a_gradient": (CHOICE,),
    "logit_gradient_is_the_error": (CHOICE,),
    "logit_gradient_of_the_mean_is_the_error": (CHOICE,),
    "tied_head_is_the_table": (*ONE_STACK, TABLE),
    "tied_gradient_sums_both_uses": (*ONE_STACK, TABLE, TIED, SEVERAL, CHOICE),
}
"""In the order of `Property`; a setting that a property does not look at is no requirement."""
