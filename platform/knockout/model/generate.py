"""A network that writes on: reading the prompt in one pass, then one token after another.

The invariant: what is generated depends on the weights, the prompt, the sampling and the seed alone, and is the same with a
cache as without, up to rounding of the logits.

Legend: B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from knockout.declare.architecture import Architecture
from knockout.declare.parts import LearnedPosition, NextTokenObjective
from knockout.declare.sampling import Sampling
from knockout.errors import InputError, RunError
from knockout.model.cache import Cache
from knockout.model.documents import documents_in
from knockout.model.network import Network
from knockout.model.objective import next_token_logits
from knockout.model.sampling import choose


@dataclass(frozen=True)
class Reading:
    """What a network has read, and what it says comes next."""

    tokens_BT: Tensor
    """All that was read."""
    cache: Cache
    logits_BV: Tensor
    """Of the token after the last one that was read."""


@torch.no_grad()
def prefill(network: Network, tokens_BT: Tensor, *, capacity: int, end_of_text: int | None = None) -> Reading:
    """Read a prompt of at least one token in one pass, with room for `capacity` tokens in all. Only for causal networks."""
    cache, documents = network.new_cache(len(tokens_BT), capacity=capacity), documents_in(tokens_BT, end_of_text=end_of_text)
    return Reading(tokens_BT, cache, network(tokens_BT, cache=cache, documents=documents).logits_BTV[:, -1])


@torch.no_grad()
def decode(network: Network, token_B: Tensor, *, reading: Reading, end_of_text: int | None = None) -> Reading:
    """Read one more token a sequence; the reading's cache is extended."""
    new_B1 = token_B.unsqueeze(1)
    tokens_BT, cache = torch.cat((reading.tokens_BT, new_B1), dim=1), reading.cache
    documents = documents_in(tokens_BT, end_of_text=end_of_text)
    return Reading(tokens_BT, cache, network(new_B1, cache=cache, documents=documents).logits_BTV[:, -1])


def generate(
    network: Network,
    prompt_BT: Tensor,
    *,
    num_tokens: int,
    sampling: Sampling,
    seed: int,
    num_known: int | None = None,
    end_of_text: int | None = None,
) -> Iterator[Tensor]:
    """Write `num_tokens` tokens after a prompt of at least one, and give each as token_B as soon as it is there.

    A network that reads both sides, of a prefix or of all, reads everything anew for each token, as its objective asks. The
    network is used in evaluation mode, and left so. Tokens from `num_known` on are never chosen: a vocabulary may be
    larger than its tokenizer's. After an `end_of_text` a new document begins, of which nothing before it is read; None for a
    network that was not trained so.

    Raises:
        InputError: prompt and tokens are more than the learned positions; nothing is generated then.
        RunError: the network's logits are not numbers.
    """
    check_length(network.architecture, num_tokens=prompt_BT.shape[1] + num_tokens)
    network.eval()
    generator = torch.Generator(device=prompt_BT.device).manual_seed(seed)

    def pick(logits_BV: Tensor) -> Tensor:
        known_BV = logits_BV[:, :num_known]
        if not bool(known_BV.isfinite().all()):
            raise RunError("the network's logits are not finite, as after a training that diverged: nothing can be chosen")
        return choose(known_BV, sampling=sampling, generator=generator)

    write = _write_with_cache if _reads_once(network.architecture) else _write_anew
    return write(network, prompt_BT, num_tokens=num_tokens, pick=pick, end_of_text=end_of_text)


def _reads_once(architecture: Architecture) -> bool:
    """Whether what has been read stays as it is when tokens follow."""
    return architecture.causal and isinstance(architecture.objective, NextTokenObjective)


def check_length(architecture: Architecture, *, num_tokens: int) -> None:
    """Raises InputError when a sequence of so many tokens has more than there are learned positions."""
    if isinstance(architecture.position, LearnedPosition) and num_tokens > architecture.context:
        raise InputError(
            f"prompt and new tokens are {num_tokens}, more than the {architecture.context} positions that this network has "
            "learned; ask for fewer tokens or give a shorter prompt"
        )


Pick = Callable[[Tensor], Tensor]
"""logits_BV -> token_B."""


def _write_with_cache(
    network: Network, prompt_BT: Tensor, *, num_tokens: int, pick: Pick, end_of_text: int | None
) -> Iterator[Tensor]:
    if num_tokens == 0:
        return
    reading = prefill(network, prompt_BT, capacity=prompt_BT.shape[1] + num_tokens - 1, end_of_text=end_of_text)
    yield (token_B := pick(reading.logits_BV))
    for _ in range(num_tokens - 1):
        reading = decode(network, token_B, reading=reading, end_of_text=end_of_text)
        yield (token_B := pick(reading.logits_BV))


def _write_anew(
    network: Network, prompt_BT: Tensor, *, num_tokens: int, pick: Pick, end_of_text: int | None
) -> Iterator[Tensor]:
    tokens_BT = prompt_BT
    for _ in range(num_tokens):
        with torch.no_grad():
            token_B = pick(next_token_logits(network, tokens_BT, end_of_text=end_of_text))
        yield token_B
        tokens_BT = torch.cat((tokens_BT, token_B.unsqueeze(1)), dim=1)
