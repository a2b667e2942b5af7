"""Byte-level byte-pair encoding: `tokenizers` learns the merges, `tiktoken` encodes with them.

The invariant: tiktoken's numbers are those that `tokenizers` itself gives. `tokenizers` merges listed pairs, tiktoken any
two tokens whose bytes together are a token. They agree when (1) each token comes from one merge, in the order of the tokens'
numbers, and (2) each token's own bytes become that token. For suppose that tiktoken merges x and y into a token and
`tokenizers` does not, for the first time on some text. Until then both did the same, and no merge crossed the ends of xy; so
the bytes of xy alone, whose merges are the same ones in the same order, come to x and y as well and stay there, against (2).
Both are checked whenever merges are learnt.

Both cut text into words before they merge, by GPT-2's pattern (Radford et al., "Language models are unsupervised multitask
learners", 2019, its released encoder), each with Unicode tables of its own; a test compares them on every code point.

Shapes: N tokens of one document, V vocabulary.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np

from knockout.corpus.building import write_whole
from knockout.corpus.encoding.encoder import Encoder
from knockout.corpus.encoding.training_text import TrainingText
from knockout.corpus.shards import token_dtype
from knockout.corpus.text import pieces
from knockout.errors import CorpusError

if TYPE_CHECKING:
    from tiktoken import Encoding
    from tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"
PIECE_BYTES = 2**20
"""Longer documents are encoded in pieces, so that memory stays small; no token crosses a piece's end."""
DECODED_TOKENS = 2**17
"""Tokens that are turned back into bytes at a time, with 8 bytes of memory and more for each of these."""
WORDS = r"""(?:'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+$)|\s+(?!\S)|\s"""
"""GPT-2's pattern, with all that needs no look-ahead in a group: the engine hands that to an automaton, which takes no stack
for a long word, and encodes 1.8 times as fast as with the group's members by themselves."""
MARKER = "<|endoftext|>"
"""Never allowed, so that it is text wherever it stands. Without any marker tiktoken looks for one at every character, and
takes 1.6 times as long."""
MAX_SPACES = 500_000
"""White space in a row that the pattern's engine has stack for; it has some for 1,000,000."""
LONG_SPACES = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]{1000,}")


@final
class BpeEncoder(Encoder):
    """Byte-level byte-pair encoding; end-of-text is the last number, and unknown to the tokenizer."""

    file = TOKENIZER

    def __init__(self, path: Path, *, vocabulary: int) -> None:
        ranks, self.encoding = _opened(str(path), path.stat().st_mtime_ns)
        self.end_of_text = vocabulary - 1
        self.token_bytes_V = np.zeros(vocabulary, np.int64)
        self.token_bytes_V[list(ranks.values())] = [len(token) for token in ranks]
        self._bytes = np.frombuffer(b"".join(sorted(ranks, key=ranks.__getitem__)), np.uint8)
        self._starts_V = np.cumsum(self.token_bytes_V) - self.token_bytes_V

    def encode(self, documents: list[bytes]) -> list[np.ndarray]:
        dtype = token_dtype(len(self.token_bytes_V))
        return [np.concatenate([self._encode(text).astype(dtype) for text in _texts(document)]) for document in documents]

    def _encode(self, text: str) -> np.ndarray:
        return self.encoding.encode_to_numpy(text, disallowed_special=())

    def _content(self, tokens_N: np.ndarray) -> bytes:
        parts = (tokens_N[start : start + DECODED_TOKENS] for start in range(0, len(tokens_N), DECODED_TOKENS))
        return b"".join(self._bytes_of(part_N).tobytes() for part_N in parts)

    def _bytes_of(self, tokens_N: np.ndarray) -> np.ndarray:
        """The bytes of tokens, each copied from where it stands in `_bytes`."""
        lengths_N = self.token_bytes_V[tokens_N]
        ends_N = np.cumsum(lengths_N)
        shifts_N = self._starts_V[tokens_N] - (ends_N - lengths_N)
        return self._bytes[np.arange(lengths_N.sum()) + np.repeat(shifts_N, lengths_N)]


def fit_bpe(text: TrainingText, *, sample_bytes: int, vocabulary: int, name: str, path: Path) -> None:
    """Learn merges from a sample, and from one twice as large for as long as it gives too few of them; write them.

    Raises:
        CorpusError: the text is too short for the vocabulary.
    """
    while True:
        tokenizer = _train(text.take(sample_bytes), vocabulary=vocabulary)
        reached = tokenizer.get_vocab_size() + 1
        if reached == vocabulary:
            break
        if sample_bytes >= text.num_bytes:
            raise CorpusError(
                f"corpus {name}: its {text.num_bytes:,} bytes of training text support a vocabulary of at most "
                f"{reached:,}, not {vocabulary:,}: add text or lower the vocabulary: --vocabulary {reached}, and in "
                f"a study `baseline: {{vocabulary: {reached}}}`"
            )
        sample_bytes *= 2
    check_merges(tokenizer)
    write_whole(path, text=tokenizer.to_str(pretty=True))


def check_merges(tokenizer: Tokenizer) -> None:
    """Whether any encoder by ranks gives the numbers that `tokenizers` gives; see the module's invariant.

    Raises:
        RuntimeError: it may not.
    """
    model = json.loads(tokenizer.to_str())["model"]
    numbers = model["vocab"]
    made = [numbers["".join(pair)] for pair in model["merges"]]
    known = len(numbers) - len(made)
    if made != list(range(known, len(numbers))):
        raise RuntimeError("the tokenizer's merges do not make one token each in the order of the tokens")
    for token in numbers:
        if [part.value for part in tokenizer.model.tokenize(token)] != [token]:
            raise RuntimeError(f"the tokenizer's own token {token!r} is not encoded as itself")


def _texts(document: bytes) -> Iterator[str]:
    """Pieces of a document; white space that is too long in a row ends one where the pattern ends a word."""
    for piece in pieces(document, limit=PIECE_BYTES):
        text = piece.decode()
        start = 0
        for spaces in LONG_SPACES.finditer(text) if len(text) > MAX_SPACES else ():
            if spaces.end() - spaces.start() > MAX_SPACES and spaces.end() < len(text):
                yield text[start : spaces.end() - 1]
                start = spaces.end() - 1
        yield text[start:]


@lru_cache(maxsize=2)
def _opened(path: str, written: int) -> tuple[dict[bytes, int], Encoding]:
    """Each token's bytes and number, and tiktoken's encoder: made once in a process for as long as the file stays."""
    from tiktoken import Encoding

    ranks = _ranks(Path(path))
    return ranks, Encoding("knockout", pat_str=WORDS, mergeable_ranks=ranks, special_tokens={MARKER: len(ranks)})


def _ranks(path: Path) -> dict[bytes, int]:
    """Each token's bytes and number."""
    to_byte = {character: byte for byte, character in enumerate(_characters())}
    numbers = json.loads(path.read_bytes())["model"]["vocab"]
    return {bytes(to_byte[character] for character in token): number for token, number in numbers.items()}


def _characters() -> list[str]:
    """The character that stands for each byte in a byte-level tokenizer's file (`bytes_to_unicode` of GPT-2's encoder)."""
    shown = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(hidden)) for byte in range(256)]


def _train(sample: list[bytes], *, vocabulary: int) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - 1,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    texts = (piece.decode() for document in sample for piece in pieces(document, limit=PIECE_BYTES))
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
