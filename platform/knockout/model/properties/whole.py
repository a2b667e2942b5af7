"""Properties of the network as a whole: how it adds up, whether it is linear, what it reads, what it can remember.

Legend: B batch, T tokens, D width, H heads, K head width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from knockout.declare.architecture import Architecture
from knockout.declare.parts import NoAttention, NoNorm
from knockout.model.network import Network
from knockout.model.properties.finding import (
    EXACT,
    Finding,
    affine,
    attention_of,
    block_of,
    difference,
    draw,
    in_heads,
    joined,
    network_of,
    outputs_of,
    run,
    same,
    tokens_of,
    weights_BHTT,
)


def stream_sums_the_increments(architecture: Architecture) -> Finding:
    """Whether the last block's output is its input plus what every branch of every block put out."""
    network, x_BTD = network_of(architecture), _stream_BTD(architecture)
    blocks = [block_of(network, layer=layer) for layer in range(architecture.depth)]
    branches = {f"{i}.{name}": part for i, b in enumerate(blocks) for name, part in _branches(b).items()}
    with torch.no_grad(), outputs_of(branches) as seen:
        found_BTD = x_BTD
        for block in blocks:
            found_BTD = block(found_BTD)
    increments = [outputs[0] for outputs in seen.values()]
    total_BTD = x_BTD + torch.stack(increments).sum(0)
    count = f"{len(increments)} branches of {architecture.depth} layers"
    return same(
        found_BTD,
        total_BTD,
        equal=f"the stream after the blocks is the input plus the outputs of the {count}",
        unequal=f"the stream after the blocks is not the input plus the outputs of the {count}",
    )


def stream_is_linear(architecture: Architecture) -> Finding:
    """Whether the map from the embedded stream to the last one is linear but for a constant."""
    kinds = f"attention {architecture.attention.kind}, ffn {architecture.ffn.kind}, norm {architecture.norm.kind}"
    found = affine(
        partial(run, network_of(architecture)),
        shape=_shape(architecture),
        what=f"{architecture.depth} blocks of {kinds}",
    )
    reasons = [
        *(["the weights of attention come from its input"] if _attends(architecture) else []),
        *(["a norm divides by its input's size"] if not isinstance(architecture.norm, NoNorm) else []),
    ]
    if found.holds or not reasons:
        return found
    return replace(found, detail=f"{found.detail}: {' and '.join(reasons)}")


def _attends(architecture: Architecture) -> bool:
    return architecture.depth > 0 and not isinstance(architecture.attention, NoAttention)


def attention_is_linear(architecture: Architecture) -> Finding:
    """Whether attention alone, without norm and residual, is linear in its input but for a constant."""
    what = "attention alone, whose weights come from its input too"
    return affine(attention_of(network_of(architecture)), shape=_shape(architecture), what=what)


def attention_is_linear_in_its_values(architecture: Architecture) -> Finding:
    """Whether attention is linear in what the values are made from, while its weights are held."""
    attention, x_BTD = attention_of(network_of(architecture)), _stream_BTD(architecture)
    query, key = (in_heads(part(x_BTD), num_heads=architecture.heads) for part in (attention.query, attention.key))
    weights = weights_BHTT(query, key, causal=architecture.causal).detach()

    def read(y_BTD: Tensor) -> Tensor:
        value = in_heads(attention.value(y_BTD), num_heads=architecture.heads)
        return attention.output(joined(weights @ value))

    return affine(read, shape=_shape(architecture), what="attention with its weights held")


def norm_is_linear(architecture: Architecture) -> Finding:
    """Whether the declared norm is linear but for a constant."""
    norm = block_of(network_of(architecture)).attention_norm
    return affine(
        norm, shape=_shape(architecture), what=f"norm {architecture.norm.kind}, which divides by its input's own size"
    )


def cached_equals_recomputed(architecture: Architecture) -> Finding:
    """Whether a prompt read at once and then one token at a time gives the logits of one pass over everything."""
    network, tokens_BT = network_of(architecture), tokens_of(architecture)
    batch, num = tokens_BT.shape
    prompt = num // 2
    cache = network.new_cache(batch, capacity=num)
    pieces = [tokens_BT[:, :prompt], *tokens_BT[:, prompt:].split(1, dim=1)]
    with torch.no_grad():
        cached_BTV = torch.cat([network(piece, cache=cache).logits_BTV for piece in pieces], dim=1)
        whole_BTV = network(tokens_BT).logits_BTV
    return same(
        cached_BTV,
        whole_BTV,
        equal=f"a prompt of {prompt} tokens and {num - prompt} single ones through the cache give the logits of one pass",
        unequal="the logits through the cache are not those of one pass",
    )


def past_keys_and_values_stay(architecture: Architecture) -> Finding:
    """Whether the keys and values of a prefix, in every layer, are those of the same tokens in a longer text."""
    network, tokens_BT = network_of(architecture), tokens_of(architecture)
    prefix = tokens_BT.shape[1] // 2
    short, long = (_keys_and_values(network, tokens) for tokens in (tokens_BT[:, :prefix], tokens_BT))
    layers = [difference(late[:, :prefix], early) for early, late in zip(short, long, strict=True)]
    moved = sorted({index // 2 for index, gap in enumerate(layers) if gap > EXACT})
    after = f"{tokens_BT.shape[1] - prefix} more tokens"
    where = (
        f"changes keys and values from layer {moved[0] + 1} on" if moved else "changes no key and no value of the first ones"
    )
    return Finding(not moved, max(layers), f"reading {after} {where} (largest relative difference {max(layers):.1e})")


def past_queries_are_not_needed(architecture: Architecture) -> Finding:
    """Whether the last token's output follows from its own query and all keys and values."""
    attention, x_BTD = attention_of(network_of(architecture)), _stream_BTD(architecture)
    heads = architecture.heads
    with torch.no_grad():
        key, value = (in_heads(part(x_BTD), num_heads=heads) for part in (attention.key, attention.value))
        query = in_heads(attention.query(x_BTD[:, -1:]), num_heads=heads)
        last_BTD = attention.output(joined(weights_BHTT(query, key, causal=False) @ value))
        whole_BTD = attention(x_BTD)
    return same(
        last_BTD,
        whole_BTD[:, -1:],
        equal="the newest token's own query, with all keys and values, gives its output: no earlier query enters",
        unequal="the newest token's output does not follow from its own query, all keys and all values",
    )


def neighbours_read_layer_inputs(architecture: Architecture) -> Finding:
    """Whether a token's output in a layer is untouched by what another token reads there, and touched one layer later.

    What attention gives to one token in the first layer is replaced; the token after it is watched in both layers.
    """
    network, tokens_BT = network_of(architecture), tokens_of(architecture)
    place = tokens_BT.shape[1] // 2
    watched: dict[str, nn.Module] = {str(layer): block_of(network, layer=layer) for layer in (0, 1)}
    plain = _after_each(network, tokens_BT, watched=watched)
    handle = attention_of(network).register_forward_hook(partial(_replace_at, place=place))
    changed = _after_each(network, tokens_BT, watched=watched)
    handle.remove()
    later = slice(place + 1, None)
    same_layer, next_layer = (difference(changed[i][:, later], plain[i][:, later]) for i in (0, 1))
    holds = same_layer <= EXACT < next_layer
    detail = (
        f"replacing what token {place + 1} read in layer 1 changes later tokens by {same_layer:.1e} after layer 1 "
        f"and by {next_layer:.1e} after layer 2"
    )
    return Finding(holds, same_layer, detail)


def _branches(block: Any) -> dict[str, nn.Module]:
    return {name: part for name in ("attention", "ffn") if (part := getattr(block, name)) is not None}


def _after_each(network: Network, tokens_BT: Tensor, *, watched: dict[str, nn.Module]) -> list[Tensor]:
    with torch.no_grad(), outputs_of(watched) as seen:
        network(tokens_BT)
    return [outputs[0] for outputs in seen.values()]


def _replace_at(_: nn.Module, __: Any, output_BTD: Tensor, *, place: int) -> Tensor:
    changed_BTD = output_BTD.clone()
    changed_BTD[:, place] = draw(*changed_BTD[:, place].shape, name="replacement")
    return changed_BTD


def _keys_and_values(network: Network, tokens_BT: Tensor) -> list[Tensor]:
    parts = [(layer, name) for layer in range(len(network.blocks)) for name in ("key", "value")]
    modules = {f"{layer}.{name}": getattr(attention_of(network, layer=layer), name) for layer, name in parts}
    with torch.no_grad(), outputs_of(modules) as seen:
        network(tokens_BT)
    return [outputs[0] for outputs in seen.values()]


def _shape(architecture: Architecture) -> tuple[int, int, int]:
    return 2, architecture.context, architecture.width


def _stream_BTD(architecture: Architecture) -> Tensor:
    return draw(*_shape(architecture), name="x")
