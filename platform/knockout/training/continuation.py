"""Text that a trained run writes after a prompt.

The invariant: the run's own tokenizer, from the corpus that it was trained on, reads the prompt and writes the text.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from knockout.corpus.encoding.encoders import Encoder, SymbolEncoder, open_encoder
from knockout.corpus.lookup import find_by_digest
from knockout.declare.rescale import rotary_scaling, with_rotary_scaling
from knockout.declare.sampling import Sampling
from knockout.errors import InputError
from knockout.model.generate import generate
from knockout.training.data import border
from knockout.training.spec import read_spec
from knockout.training.trained import load_network

MOST_DIGITS = 9
"""Of a symbol in a prompt, leading zeros included."""


@dataclass(frozen=True)
class Continuation:
    """What was written, and how long it took."""

    prompt: str
    text: str
    """Without the prompt."""
    tokens: tuple[int, ...]
    """The end-of-text token included, when it was written."""
    prompt_tokens: int
    prefill_seconds: float
    """From the prompt to the first token."""
    decode_seconds: float
    """For all tokens after the first."""


def continue_text(
    folder: Path,
    *,
    corpora: Path,
    prompt: str,
    num_tokens: int,
    sampling: Sampling,
    seed: int,
    scaling: str | None = None,
) -> Continuation:
    """Have the run in `folder` write up to `num_tokens` tokens, 1 or more, or fewer to the end of its text.

    A generator's symbols are written as numbers with spaces between, in the prompt too. An empty prompt is the beginning
    of a text. `scaling` changes rotary angles for contexts longer than in training, as `rotary_scaling` reads it.

    Raises:
        InputError: the prompt or the scaling cannot be read, or prompt and tokens do not fit the learned positions.
        CorpusError: the run's corpus is not under `corpora`.
        RunError: the run is not finished, or its logits are not numbers.
    """
    spec = read_spec(folder)
    architecture = spec.architecture
    if scaling is not None:
        architecture = with_rotary_scaling(architecture, scaling=rotary_scaling(scaling, architecture=architecture))
    network = load_network(folder, architecture=architecture)
    prepared = find_by_digest(spec.corpus, folder=corpora)
    encoder = open_encoder(prepared.folder, manifest=prepared.manifest)
    start = _encode(prompt, encoder=encoder)
    written, seconds, begin = [], [], time.monotonic()
    for token_B in generate(
        network,
        torch.tensor([start]),
        num_tokens=num_tokens,
        sampling=sampling,
        seed=seed,
        num_known=encoder.num_known,
        end_of_text=border(spec.recipe.packing, manifest=prepared.manifest),
    ):
        written.append(int(token_B))
        seconds.append(time.monotonic() - begin)
        if written[-1] == encoder.end_of_text:
            break
    return Continuation(
        prompt=prompt,
        text=_decode(written, encoder=encoder),
        tokens=tuple(written),
        prompt_tokens=len(start),
        prefill_seconds=seconds[0],
        decode_seconds=seconds[-1] - seconds[0],
    )


def _encode(prompt: str, *, encoder: Encoder) -> list[int]:
    if isinstance(encoder, SymbolEncoder):
        return _symbols(prompt, alphabet=encoder.end_of_text) or [encoder.end_of_text]
    try:
        document = prompt.encode()
    except UnicodeEncodeError:
        raise InputError(f"prompt {_shown(prompt)}: not UTF-8 text") from None
    return encoder.encode([document])[0].tolist() if document else [encoder.end_of_text]


def _symbols(prompt: str, *, alphabet: int) -> list[int]:
    words = prompt.split()
    if not all(word.isdecimal() and len(word) <= MOST_DIGITS and int(word) < alphabet for word in words):
        raise InputError(f"prompt {_shown(prompt)}: this run was trained on symbols; give numbers from 0 to {alphabet - 1}")
    return [int(word) for word in words]


def _shown(prompt: str) -> str:
    text = prompt if len(prompt) <= 80 else prompt[:77] + "…"
    return f"'{text}'" if text.isprintable() else ascii(text)


def _decode(tokens: list[int], *, encoder: Encoder) -> str:
    if isinstance(encoder, SymbolEncoder):
        return "".join(f" {token}" for token in tokens if token != encoder.end_of_text)
    return encoder.decode(np.array(tokens)).decode(errors="replace")
