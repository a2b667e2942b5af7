"""Whole networks against Hugging Face's `transformers`: one set of random weights, the same logits.

Each shipped preset, made small, is compared with the class that its publisher's weights are used with. What is left to that
class' own defaults (activation, order of a block's parts, softmax, routing) is thereby checked against the preset. All gains
and biases are drawn too, so that none of them can be left out or swapped. The network is never asked for anything: models
are made from configurations.

Names on the left are this project's, on the right those of `transformers`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from knockout.declare.architecture import Architecture
from knockout.declare.load import load_preset
from knockout.declare.parts import LinearScaling, NtkScaling, RotaryScaling, YarnScaling
from knockout.declare.rescale import with_rotary_scaling
from knockout.declare.sampling import GreedySampling
from knockout.model import Network, build
from knockout.model.generate import generate

Weights = dict[str, Tensor]
REFERENCE = Path(sys.prefix) / "reference"
TINY: dict[str, Any] = {"width": 32, "depth": 2, "heads": 4, "context": 16, "vocabulary": 61}
SHARED: dict[str, Any] = {"vocab_size": 61, "initializer_range": 0.2, "bos_token_id": 0, "eos_token_id": 1}
LLAMA_LIKE: dict[str, Any] = {
    **SHARED,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 16,
    "rms_norm_eps": 1e-5,
}


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """`transformers`, imported by the first test that needs it: 3 s that no other test should pay at collection."""
    assert (REFERENCE / "transformers").is_dir(), "`make lint` installs it there"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(REFERENCE)])
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield importlib.import_module("transformers")


def shrunk(preset: str, **changes: Any) -> Architecture:
    """A shipped preset with other dimensions; a mapping changes single settings of a slot."""
    declared = dict(load_preset(preset).data)
    for name, value in {**TINY, **changes}.items():
        declared[name] = {**declared[name], **value} if isinstance(value, dict) else value
    return Architecture.model_validate(declared)


def drawn(make: Callable[[Any], Any], config: Any, *, dtype: torch.dtype = torch.float32) -> Any:
    """A model of the library with weights of its own drawing, and gains, biases and balancing numbers moved off 1 and 0."""
    with torch.random.fork_rng():
        torch.manual_seed(70)
        model = make(config)
        for tensor in model.state_dict().values():
            if tensor.dim() == 1:
                tensor += config.initializer_range * torch.randn(tensor.shape)
    return model.to(dtype).eval()


def loaded(architecture: Architecture, *, weights: Weights, dtype: torch.dtype = torch.float32) -> Network:
    """The architecture's network with all its weights and balancing numbers, none left over, from elsewhere."""
    network = build(architecture, seed=0, dtype=dtype)
    network.load_state_dict(weights, strict=True)
    return network.eval()


def tokens(batch: int, *, length: int, vocabulary: int = 61) -> Tensor:
    return torch.randint(vocabulary, (batch, length), generator=torch.Generator().manual_seed(72))


def deviation(network: Network, model: Any, *, tokens_BT: Tensor) -> float:
    """The largest difference of two logits over the largest logit."""
    with torch.no_grad():
        ours_BTV, theirs_BTV = network(tokens_BT).logits_BTV, model(tokens_BT).logits
    return ((ours_BTV - theirs_BTV).abs().max() / theirs_BTV.abs().max()).item()


def gpt2_weights(model: nn.Module, *, depth: int) -> Weights:
    """Their linear maps are stored input first, and queries, keys and values in one."""
    theirs = model.state_dict()
    pairs = {"attention_norm": "ln_1", "ffn_norm": "ln_2"}
    maps = {"attention.output": "attn.c_proj", "ffn.up": "mlp.c_fc", "ffn.down": "mlp.c_proj"}
    found = {"embedding.weight": theirs["transformer.wte.weight"], "position.weight": theirs["transformer.wpe.weight"]}
    for kind in ("weight", "bias"):
        found[f"norm.{kind}"] = theirs[f"transformer.ln_f.{kind}"]
        for layer in range(depth):
            ours, their = f"blocks.{layer}", f"transformer.h.{layer}"
            found |= {f"{ours}.{name}.{kind}": theirs[f"{their}.{other}.{kind}"] for name, other in pairs.items()}
            found |= {
                f"{ours}.{name}.{kind}": output_first(theirs[f"{their}.{other}.{kind}"]) for name, other in maps.items()
            }
            query, key, value = output_first(theirs[f"{their}.attn.c_attn.{kind}"]).chunk(3)
            own = {"query": query, "key": key, "value": value}
            found |= {f"{ours}.attention.{name}.{kind}": part for name, part in own.items()}
    return found


def output_first(map_or_bias: Tensor) -> Tensor:
    return map_or_bias.T if map_or_bias.dim() == 2 else map_or_bias


def llama_like_weights(model: nn.Module, *, layer_weights: Callable[[Weights, int], Weights]) -> Weights:
    """What Llama and those after it share: norms, embedding and head; `layer_weights` gives a block's own two branches."""
    theirs = model.state_dict()
    outside = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
    found = {f"{name}.weight": theirs[f"{other}.weight"] for name, other in outside.items()}
    for layer in range(TINY["depth"]):
        their = f"model.layers.{layer}."
        inside = {name.removeprefix(their): tensor for name, tensor in theirs.items() if name.startswith(their)}
        own = {"attention_norm.weight": inside["input_layernorm.weight"]}
        own["ffn_norm.weight"] = inside["post_attention_layernorm.weight"]
        own |= layer_weights(inside, layer)
        found |= {f"blocks.{layer}.{name}": tensor for name, tensor in own.items()}
    return found


def renamed(theirs: Weights, names: dict[str, str]) -> Weights:
    return {f"{name}.weight": theirs[f"{other}.weight"] for name, other in names.items()}


def grouped(theirs: Weights) -> Weights:
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
    return renamed(theirs, {f"attention.{name}": f"self_attn.{other}" for name, other in names.items()})


def swiglu(theirs: Weights, *, ours: str = "ffn", their: str = "mlp") -> Weights:
    return renamed(theirs, {f"{ours}.{name}": f"{their}.{name}_proj" for name in ("gate", "up", "down")})


def experts(theirs: Weights) -> Weights:
    """Router and experts; gate and up are stored as one."""
    gate, up = theirs["mlp.experts.gate_up_proj"].chunk(2, dim=1)
    maps = {"gate": gate, "up": up, "down": theirs["mlp.experts.down_proj"]}
    found = {f"ffn.experts.{name}.weight": tensor for name, tensor in maps.items()}
    return found | renamed(theirs, {"ffn.router": "mlp.gate"})


def latent(theirs: Weights, *, nope_width: int, interleaved: bool) -> Weights:
    """Where their rotary pairs are neighbours and ours halves, the rows that make the rotated units change places."""
    low_rank = "self_attn.q_a_proj.weight" in theirs
    names = {"kv_down": "kv_a_proj_with_mqa", "kv_norm": "kv_a_layernorm", "kv_up": "kv_b_proj", "output": "o_proj"}
    query = {"query.reduce": "q_a_proj", "query.norm": "q_a_layernorm", "query.expand": "q_b_proj"}
    names |= query if low_rank else {"query": "q_proj"}
    found = renamed(theirs, {f"attention.{name}": f"self_attn.{other}" for name, other in names.items()})
    if interleaved:
        last, rank = (
            f"attention.{'query.expand' if low_rank else 'query'}.weight",
            len(theirs["self_attn.kv_a_layernorm.weight"]),
        )
        heads = found[last].unflatten(0, (TINY["heads"], -1))
        found[last] = torch.stack([neighbours_to_halves(head, start=nope_width) for head in heads]).flatten(0, 1)
        found["attention.kv_down.weight"] = neighbours_to_halves(found["attention.kv_down.weight"], start=rank)
    return found


def neighbours_to_halves(rows: Tensor, *, start: int) -> Tensor:
    """The rows from `start` on, paired (0, 1), (2, 3) … (n - 2, n - 1), in the order 0, 2 … n - 2, 1, 3 … n - 1."""
    rotated = rows[start:]
    return torch.cat((rows[:start], rotated[0::2], rotated[1::2]))


@pytest.fixture(scope="module")
def gpt2(library: Any) -> tuple[Network, Any]:
    """GPT-2 124M as the library declares it by default, its weights 2.5 times as wide so that the tokens matter."""
    config = library.GPT2Config(initializer_range=0.05, bos_token_id=None, eos_token_id=None)
    model = drawn(library.GPT2LMHeadModel, config)
    architecture = Architecture.model_validate(load_preset("gpt2").data)
    return loaded(architecture, weights=gpt2_weights(model, depth=12)), model


def test_gpt2_124m_gives_the_same_logits(gpt2: tuple[Network, Any]) -> None:
    network, model = gpt2
    assert sum(parameter.numel() for parameter in network.parameters()) == model.num_parameters() == 124_439_808
    assert deviation(network, model, tokens_BT=tokens(2, length=24, vocabulary=50257)) < 1e-5


def test_gpt2_124m_writes_the_same_tokens(gpt2: tuple[Network, Any]) -> None:
    """Both with a KV cache, greedily."""
    network, model = gpt2
    prompt_BT = tokens(2, length=8, vocabulary=50257)
    mask_BT = torch.ones_like(prompt_BT)
    theirs_BT = model.generate(prompt_BT, attention_mask=mask_BT, max_new_tokens=20, do_sample=False, pad_token_id=0)
    ours = generate(network, prompt_BT, num_tokens=20, sampling=GreedySampling(), seed=0)
    assert theirs_BT[:, 8:].unique().numel() > 15  # not one token again and again
    assert torch.equal(torch.stack(list(ours), dim=1), theirs_BT[:, 8:])


@pytest.mark.parametrize(("kind", "theirs"), [("gelu_tanh", "gelu_new"), ("gelu", "gelu"), ("relu", "relu")])
def test_a_small_gpt2_in_float64_gives_the_same_logits(library: Any, kind: str, theirs: str) -> None:
    config = library.GPT2Config(
        **SHARED, n_embd=32, n_layer=2, n_head=4, n_positions=16, n_inner=88, activation_function=theirs
    )
    model = drawn(library.GPT2LMHeadModel, config, dtype=torch.float64)
    architecture = shrunk("gpt2", ffn={"kind": kind, "hidden": 88})
    network = loaded(architecture, weights=gpt2_weights(model, depth=2), dtype=torch.float64)
    assert deviation(network, model, tokens_BT=tokens(3, length=16)) < 1e-10


def small_llama(library: Any, *, rope: dict[str, Any], context: int = 16) -> tuple[Architecture, Weights, Any]:
    """One of two key/value heads; the rotary settings and the longest sequence are theirs alone."""
    config = library.LlamaConfig(
        **{**LLAMA_LIKE, "hidden_size": 64, "max_position_embeddings": context},
        intermediate_size=88,
        num_key_value_heads=2,
        rope_parameters={"rope_theta": 10000.0, **rope},
    )
    model = drawn(library.LlamaForCausalLM, config)
    weights = llama_like_weights(model, layer_weights=lambda theirs, _: grouped(theirs) | swiglu(theirs))
    attention = {"kind": "grouped", "kv_heads": 2}
    return shrunk("llama2-7b", width=64, attention=attention, ffn={"hidden": 88}), weights, model


def test_a_small_llama_gives_the_same_logits(library: Any) -> None:
    """Grouped queries, rotary halves, SwiGLU, RMS norms, a head of its own, no biases."""
    architecture, weights, model = small_llama(library, rope={"rope_type": "default"})
    assert deviation(loaded(architecture, weights=weights), model, tokens_BT=tokens(3, length=16)) < 1e-5


SCALINGS: dict[str, tuple[RotaryScaling, dict[str, Any], int]] = {
    "linear": (LinearScaling(factor=4.0), {"rope_type": "linear", "factor": 4.0}, 64),
    # Theirs grows with the sequence, to factor * length / context - (factor - 1): 4 at 32 tokens after a context of 16.
    "ntk": (NtkScaling(factor=4.0), {"rope_type": "dynamic", "factor": 3.0}, 16),
    # Between beta_slow and beta_fast ours is linear in a pair's turns, as in the paper, and theirs in its number, as in
    # the authors' code. So the two are set such that no pair is between them: 2 of 8 are kept, the others interpolated.
    "yarn": (
        YarnScaling(factor=4.0, original_context=16, beta_fast=0.6, beta_slow=0.5),
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 16,
            "beta_fast": 0.6,
            "beta_slow": 0.5,
            "truncate": False,
        },
        64,
    ),
}


@pytest.mark.parametrize("kind", SCALINGS)
def test_a_llama_read_at_twice_its_context_gives_the_same_logits(library: Any, kind: str) -> None:
    scaling, rope, context = SCALINGS[kind]
    architecture, weights, model = small_llama(library, rope=rope, context=context)
    scaled = loaded(with_rotary_scaling(architecture, scaling=scaling), weights=weights)
    tokens_BT = tokens(3, length=32)
    assert deviation(scaled, model, tokens_BT=tokens_BT) < 1e-5
    assert deviation(loaded(architecture, weights=weights), model, tokens_BT=tokens_BT) > 1e-2


def test_a_small_mixtral_gives_the_same_logits(library: Any) -> None:
    """A softmax over all experts, of which the two best are divided by their sum."""
    config = library.MixtralConfig(
        **LLAMA_LIKE,
        intermediate_size=24,
        num_key_value_heads=2,
        num_local_experts=5,
        num_experts_per_tok=2,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )
    model = drawn(library.MixtralForCausalLM, config)
    architecture = shrunk("mixtral-8x7b", attention={"kv_heads": 2}, ffn={"experts": 5, "hidden": 24})
    weights = llama_like_weights(model, layer_weights=lambda theirs, _: grouped(theirs) | experts(theirs))
    assert deviation(loaded(architecture, weights=weights), model, tokens_BT=tokens(3, length=16)) < 1e-5


DEEPSEEK_YARN: dict[str, Any] = {**SCALINGS["yarn"][1], "mscale": 1.0, "mscale_all_dim": 1.0}
DEEPSEEK: dict[str, dict[str, Any]] = {
    "as published": {},
    "with rotary pairs as halves": {"rope_interleave": False},
    "with queries from the stream": {"q_lora_rank": None},
    "with two shared experts": {"n_shared_experts": 2},
    "with scaled angles": {"rope_parameters": {"rope_theta": 10000.0, **DEEPSEEK_YARN}},
}


@pytest.mark.parametrize("changes", DEEPSEEK.values(), ids=DEEPSEEK)
def test_a_small_deepseek_v3_gives_the_same_logits(library: Any, changes: dict[str, Any]) -> None:
    """Latent attention, a dense first layer, sigmoid routing with balancing numbers, shared experts.

    Theirs first chooses groups of experts; with one group that is a choice among all, as ours is. Their multi-token
    prediction module is no part of the class.
    """
    settings = {**LLAMA_LIKE, "rms_norm_eps": 1e-6, "q_lora_rank": 10, "n_shared_experts": 1, "rope_interleave": True}
    latents = {"kv_lora_rank": 12, "qk_nope_head_dim": 6, "qk_rope_head_dim": 8, "v_head_dim": 10}
    mixture = {"n_routed_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "n_group": 1, "topk_group": 1}
    layers = {"intermediate_size": 88, "first_k_dense_replace": 1, "num_key_value_heads": 4}
    config = library.DeepseekV3Config(**{**settings, **latents, **mixture, **layers, **changes})
    model = drawn(library.DeepseekV3ForCausalLM, config)

    def layer_weights(theirs: Weights, layer: int) -> Weights:
        attention = latent(theirs, nope_width=6, interleaved=config.rope_interleave)
        if layer == 0:
            return attention | swiglu(theirs)
        found = attention | experts(theirs) | swiglu(theirs, ours="ffn.shared", their="mlp.shared_experts")
        return found | {"ffn.balance.choice_bias": theirs["mlp.gate.e_score_correction_bias"]}

    architecture = shrunk(
        "deepseek-v3",
        attention={"q_rank": config.q_lora_rank, "kv_rank": 12, "nope_width": 6, "rope_width": 8, "value_width": 10},
        ffn={
            "experts": 6,
            "top_k": 3,
            "hidden": 24,
            "shared": config.n_shared_experts,
            "first_dense": 1,
            "dense_hidden": 88,
        },
    )
    if "rope_parameters" in changes:
        architecture = with_rotary_scaling(architecture, scaling=SCALINGS["yarn"][0])
    network = loaded(architecture, weights=llama_like_weights(model, layer_weights=layer_weights))
    assert deviation(network, model, tokens_BT=tokens(3, length=32 if "rope_parameters" in changes else 16)) < 1e-5
