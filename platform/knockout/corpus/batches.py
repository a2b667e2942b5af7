"""The batch at a step, and the exam.

The invariant: both are pure functions of their arguments. There is no loader and no state, so a resumed run
sees exactly the batches that an uninterrupted one sees, and the exam is the same for every batch size.

Shapes: B windows in a batch, S segments of the exam; a window is `context` tokens and one more to predict.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from knockout.corpus.manifest import Manifest
from knockout.corpus.order import grid, window_starts
from knockout.corpus.reading import Split
from knockout.errors import CorpusError


def batch(split: Split, *, seed: int, step: int, batch: int, context: int) -> np.ndarray:
    """The windows of a step, int64 [batch, context + 1]: the inputs and, one further, the targets.

    Step s takes places s·batch … (s + 1)·batch - 1 of an endless row of epochs; each visits all its windows
    once.

    Raises:
        CorpusError: the split is shorter than one window.
    """
    windows = grid(split.num_tokens, context=context)
    starts_B = window_starts(windows, seed=seed, first=step * batch, count=batch)
    return split.gather(starts_B, length=context + 1)


def evaluation_batches(split: Split, *, context: int, batch: int) -> Iterator[np.ndarray]:
    """The exam's windows in order, int64 [≤ batch, context + 1], each target once.

    Where context does not divide a segment, the segments' shorter last windows follow: [≤ batch, rest + 1].

    Raises:
        CorpusError: the split is not the exam's, or a window does not fit into a segment.
    """
    exam = split.manifest.evaluation
    if split.name != exam.split:
        raise CorpusError(f"the exam is on the {exam.split} split, not on {split.name}")
    if context > exam.segment_tokens:
        raise CorpusError(
            f"a window of {context:,} tokens does not fit the exam's segments of {exam.segment_tokens:,}: "
            "lower evaluation.segments in the corpus' declaration, or the context"
        )
    segments_S = np.array(exam.starts, np.int64)
    whole, rest = divmod(exam.segment_tokens, context)
    yield from _in_batches(split, (segments_S[:, None] + np.arange(whole) * context).ravel(), context + 1, batch)
    if rest:
        yield from _in_batches(split, segments_S + whole * context, rest + 1, batch)


def _in_batches(split: Split, starts: np.ndarray, length: int, batch: int) -> Iterator[np.ndarray]:
    for first in range(0, len(starts), batch):
        yield split.gather(starts[first : first + batch], length=length)


def evaluation_tokens(manifest: Manifest) -> int:
    """Number of tokens that the exam predicts, for every context and batch size."""
    return manifest.evaluation.tokens


def evaluation_bytes(manifest: Manifest) -> int:
    """Raw bytes that exactly the predicted tokens stand for: what bits per byte are counted by."""
    return manifest.evaluation.bytes
