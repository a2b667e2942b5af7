"""A corpus: where its text comes from, how it becomes tokens, and what of it is kept for the exam.

The invariant: a declaration names its text, it never holds it. What the text was is written down at
preparation, in the manifest.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from knockout.declare.base import Declaration, Name, Positive, conflicts
from knockout.declare.generators import Generator
from knockout.declare.text_sources import Files, HuggingFace, Mixture, PythonSource

Source = Annotated[PythonSource | Files | HuggingFace | Mixture | Generator, Field(discriminator="kind")]


class Bpe(Declaration):
    """Byte-level byte-pair encoding, trained on the corpus for the architecture's vocabulary."""

    kind: Literal["bpe"] = "bpe"
    sample_bytes: Annotated[int, Field(ge=1024)] = 8_000_000
    """Bytes of training documents that merges are learnt from; doubled while they give too few."""


class Bytes(Declaration):
    """Each byte is a token; end-of-text is token 256."""

    kind: Literal["bytes"] = "bytes"


class Identity(Declaration):
    """A generator's symbols are tokens already; end-of-text comes after the last symbol."""

    kind: Literal["identity"] = "identity"


Tokenizer = Annotated[Bpe | Bytes | Identity, Field(discriminator="kind")]


class KeepAll(Declaration):
    """Near copies of documents are kept."""

    kind: Literal["none"] = "none"


class MinHash(Declaration):
    """Of documents that share most of their shingles one is kept, and so of exact copies; one without words is a copy of its
    exact copies alone. Found by MinHash, in about the time of encoding."""

    kind: Literal["minhash"] = "minhash"
    threshold: Annotated[float, Field(ge=0.5, le=1.0)] = 0.8
    """Least share of common shingles (Jaccard similarity) of documents that count as copies, 0.5 … 1."""
    words: Annotated[int, Field(ge=1, le=100)] = 5
    """Length of a shingle in words."""
    permutations: Annotated[int, Field(ge=16, le=1024)] = 128
    """Numbers in a signature: the share's standard error is at most 1 / (2 √permutations)."""


NearDuplicates = Annotated[KeepAll | MinHash, Field(discriminator="kind")]


class Evaluation(Declaration):
    """How large the exam is."""

    tokens: Positive = 32_768
    """Number of validation tokens that are predicted, a multiple of `segments`."""
    segments: Positive = 16
    """Stretches that they lie in, evenly spread over the validation split, each longer than any window."""

    @property
    def segment_tokens(self) -> int:
        """Predicted tokens in each segment: the longest context of a window."""
        return self.tokens // self.segments

    def too_short_for(self, context: int) -> str:
        """What is to be changed where a window is longer than a segment."""
        return (
            f"has {self.segments:,} segments of {self.segment_tokens:,} tokens each, in which a window of {context:,} does "
            f"not fit; raise evaluation.tokens to at least {context * self.segments:,} in the corpus' declaration, lower "
            "evaluation.segments, or give the study a smaller context"
        )

    @model_validator(mode="after")
    def _segments_are_equal(self) -> Evaluation:
        if self.tokens % self.segments:
            rule = f"must be a multiple of segments ({self.segments})"
            conflicts("Evaluation", [("tokens", self.tokens, rule)])
        return self


class Corpus(Declaration):
    """Raw text or a generator, its tokenizer, and its split."""

    corpus: Name
    """The corpus' name."""
    source: Source
    """Where documents come from."""
    tokenizer: Tokenizer
    """How documents become tokens."""
    validation: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.05
    """Share of documents kept from training, in (0, 1): a text's by the hash of its content, copies together; each draw of a
    generator by itself."""
    near_duplicates: NearDuplicates = KeepAll()
    """What becomes of documents that are copies of others, or nearly so: without it, all are kept."""
    evaluation: Evaluation = Evaluation()
    """The exam."""

    @model_validator(mode="after")
    def _tokenizer_fits_source(self) -> Corpus:
        generated = isinstance(self.source, Generator)
        if generated != isinstance(self.tokenizer, Identity):
            rule = "a generator's tokenizer is identity, for its symbols are tokens already"
            if not generated:
                rule = "identity is for generators; text takes bpe or bytes"
            conflicts("Corpus", [("tokenizer.kind", self.tokenizer.kind, rule)])
        if generated and isinstance(self.near_duplicates, MinHash):
            rule = "only text has words to compare; the source is a generator"
            conflicts("Corpus", [("near_duplicates.kind", self.near_duplicates.kind, rule)])
        return self
