"""The stages of a preparation: read, count, learn merges, encode, describe.

The invariant: a stage's tasks are the same for every number of workers and machines, and what one of them has finished is
never done again, whoever begins the preparation anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from knockout.corpus.building import WORK, writing
from knockout.corpus.encoding.encoders import make_encoder
from knockout.corpus.encoding.training_text import TrainingText
from knockout.corpus.files.outcomes import left_out
from knockout.corpus.floors import PairCounts
from knockout.corpus.manifest import Counts, Manifest, SourceEntry, SplitEntry, SplitName, Splits
from knockout.corpus.preparing import ranges
from knockout.corpus.preparing.chunks import Chunk, passed_over
from knockout.corpus.preparing.describing import Side, describe, make_exam
from knockout.corpus.preparing.merging import groups, merge
from knockout.corpus.preparing.parts import (
    FOUND,
    PILE,
    Counted,
    Counting,
    Encoded,
    Encoding,
    Read,
    Reading,
    count,
    encode,
    read,
)
from knockout.corpus.preparing.runs import ENTRY, Pile, Run, evenly, gather, num_entries
from knockout.corpus.preparing.thinning import Measuring, entries, kept_of, measure
from knockout.corpus.preparing.workers import Workers
from knockout.declare.corpus import Corpus, MinHash
from knockout.declare.generators import Generator
from knockout.declare.text_sources import Mixture
from knockout.errors import CorpusError

Progress = Callable[[str, float, int], None]
"""Called with a stage's name, how much of it is done, 0 … 1, and the bytes of text that it goes through, or 0."""
Task = TypeVar("Task")
Result = TypeVar("Result")

INDEX_BYTES = 16 * 2**20
"""Index that is counted together."""


@dataclass(frozen=True)
class Preparation:
    """One corpus to be prepared in one folder."""

    corpus: Corpus
    vocabulary: int
    base: Path
    room: Path
    workers: Workers
    report: Progress

    @property
    def work(self) -> Path:
        """What is not part of the prepared corpus."""
        return self.room / WORK

    def build(self, chunks: Sequence[Chunk]) -> Manifest:
        """Do all stages.

        Raises:
            CorpusError: there is no text, too little of it, it cannot be decoded, or it changes meanwhile.
        """
        reads = self._read(chunks)
        kept = kept_of(self.corpus, reads=reads)
        sources = self._sources(reads, kept=kept)
        pile = self._without_similar(self._pile(reads, kept=kept))
        counted = self._count(pile)
        self._both_sides(counted)
        pile = replace(pile, copies=tuple(str(self.work / name) for part in counted for name in part.copies))
        pile.save(self.work / PILE)
        sizes = _sizes(counted)
        self.report("tokenizer", 0.0, 0)
        encoder = make_encoder(
            self.corpus, vocabulary=self.vocabulary, text=_training_text(pile, sizes=sizes.train), folder=self.room
        )
        self.report("tokenizer", 1.0, 0)
        validation, train = self._tasks("validation", sizes=sizes), self._tasks("train", sizes=sizes)
        results = iter(self.workers.map(encode, [*validation, *train]))  # validation first: too little of it is soon told
        exam_side = self._take(results, validation, side=Side(self.room), num_bytes=sum(sizes.validation))
        self._enough(exam_side)
        exam = make_exam(self.corpus, split=exam_side, folder=self.room, encoder=encoder)
        pairs = PairCounts(exam.tokens_SL, vocabulary=self.vocabulary)
        train_side = self._take(results, train, side=Side(self.room, counts=pairs), num_bytes=sum(sizes.train))
        self.report("floors", 0.0, 0)
        counts = Counts(
            **_skipped(reads),
            **passed_over(self.corpus.source, base=self.base),
            duplicates=sum(part.duplicates for part in counted),
            near_duplicates=sum(part.dropped for part in counted),
        )
        splits = Splits(train=train_side, validation=exam_side)
        manifest = describe(
            self.corpus,
            counts=counts,
            sources=sources,
            splits=splits,
            exam=exam,
            floors=pairs.floors(),
            encoder=encoder,
            folder=self.room,
        )
        self.report("floors", 1.0, 0)
        return manifest

    def _read(self, chunks: Sequence[Chunk]) -> list[Read]:
        tasks = [Reading(str(self.room), self.corpus, str(self.base), chunk) for chunk in chunks]
        different = {task.key: task for task in tasks}
        results = self._map(read, list(different.values()), stage="reading")
        by_key = dict(zip(different, results, strict=True))
        return [by_key[task.key] for task in tasks]

    def _sources(self, reads: list[Read], *, kept: Mapping[int, int]) -> tuple[SourceEntry, ...]:
        """What becomes of each source of a mixture."""
        if not isinstance(self.corpus.source, Mixture):
            return ()
        tasks = [Measuring(str(self.room), one.source, one.runs, kept[one.source]) for one in reads]
        return entries(self.corpus.source, measured=list(self.workers.map(measure, tasks)))

    def _pile(self, reads: list[Read], *, kept: Mapping[int, int]) -> Pile:
        runs = tuple(Run(str(self.work / name), kept[one.source]) for one in reads for name in one.runs)
        if not runs:
            raise CorpusError(f"corpus {self.corpus.corpus}: no text is left: {left_out(_skipped(reads))}")
        decider = "place" if isinstance(self.corpus.source, Generator) else "content"
        return Pile(self._merged(runs), self.corpus.validation, decider)

    def _merged(self, runs: tuple[Run, ...]) -> tuple[Run, ...]:
        """Runs few enough to be read side by side."""
        tasks = groups(runs, room=self.room)
        if not tasks:
            return runs
        names = list(self.workers.map(merge, [task for task, _ in tasks]))
        for run in {run for task, _ in tasks for run in task.runs}:
            (self.work / run).unlink(missing_ok=True)
        return tuple(Run(str(self.work / name), kept) for name, (_, kept) in zip(names, tasks, strict=True))

    def _without_similar(self, pile: Pile) -> Pile:
        method = self.corpus.near_duplicates
        if not isinstance(method, MinHash):
            return pile
        from knockout.corpus.preparing import similar

        runs = tuple(sorted({(Path(run.path).name, run.kept) for run in pile.runs}))
        signing = [similar.Signing(str(self.room), run, method) for run, _ in runs]
        self._map(similar.sign, signing, stage="comparing")
        comparing = [similar.Comparing(str(self.room), runs, band, method) for band in range(similar.bands(method)[0])]
        path = self.work / "dropped"
        contents = similar.dropped(list(self.workers.map(similar.compare, comparing)), work=self.work)
        with writing(path) as file:
            file.write(contents.tobytes())
        return replace(pile, dropped=str(path))

    def _count(self, pile: Pile) -> list[Counted]:
        pile.save(self.work / FOUND)
        documents = sum(num_entries(Path(run.path)) for run in pile.runs)
        parts = evenly(max(1, -(-documents * ENTRY.itemsize // INDEX_BYTES)))
        tasks = [Counting(str(self.room), number, low, high) for number, (low, high) in enumerate(parts)]
        return list(self.workers.map(count, tasks))

    def _tasks(self, split: SplitName, *, sizes: _Sizes) -> list[Encoding]:
        weights = sizes.train if split == "train" else sizes.validation
        parts = enumerate(ranges.cut(weights, at_most=sizes.range_bytes))
        return [Encoding(str(self.room), self.corpus, self.vocabulary, split, number, part) for number, part in parts]

    def _take(self, results: Iterator[Encoded], tasks: list[Encoding], *, side: Side, num_bytes: int) -> SplitEntry:
        """One side, read as its ranges come while others are encoded."""
        for part in self._told(results, count=len(tasks), stage=f"encoding {tasks[0].split}", num_bytes=num_bytes):
            side.take(part)
        return side.entry()

    def _map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, stage: str, num_bytes: int = 0
    ) -> list[Result]:
        results = iter(self.workers.map(function, tasks))
        return list(self._told(results, count=len(tasks), stage=stage, num_bytes=num_bytes))

    def _told(self, results: Iterator[Result], *, count: int, stage: str, num_bytes: int) -> Iterator[Result]:
        """The next `count` results, each told when it comes."""
        self.report(stage, 0.0, num_bytes)
        for number, result in enumerate(islice(results, count), start=1):
            yield result
            self.report(stage, number / count, num_bytes)

    def _both_sides(self, counted: list[Counted]) -> None:
        train, validation = (sum(part.documents[side] for part in counted) for side in (0, 1))
        if not train or not validation:
            empty = "validation" if train else "train"
            raise CorpusError(
                f"corpus {self.corpus.corpus}: none of its {train + validation:,} documents falls into the {empty} split at "
                f"validation {self.corpus.validation}: add documents, cut the text into more (source.separator), or "
                "change validation"
            )

    def _enough(self, validation: SplitEntry) -> None:
        exam = self.corpus.evaluation
        if validation.tokens <= exam.tokens:
            most = (validation.tokens - 1) // exam.segments * exam.segments
            lower = f"lower evaluation.tokens to at most {most:,}, " if most else ""
            raise CorpusError(
                f"corpus {self.corpus.corpus}: its validation split has {validation.tokens:,} tokens in "
                f"{validation.documents:,} documents, the evaluation needs {exam.tokens + 1:,}: "
                f"{lower}raise validation above {self.corpus.validation}, or add text"
            )


@dataclass(frozen=True)
class _Sizes:
    """Bytes of both sides by bucket of places."""

    train: list[int]
    validation: list[int]

    @property
    def range_bytes(self) -> int:
        return ranges.range_bytes(sum(self.train) + sum(self.validation))


def _sizes(counted: list[Counted]) -> _Sizes:
    train, validation = (np.sum([part.num_bytes[side] for part in counted], axis=0).tolist() for side in (0, 1))
    return _Sizes(train, validation)


def _training_text(pile: Pile, *, sizes: Sequence[int]) -> TrainingText:
    def documents() -> Iterator[bytes]:
        for part in ranges.cut(sizes, at_most=ranges.STEP_BYTES):
            yield from gather(pile, low=part.low, high=part.high, validation=False)

    return TrainingText(documents, sum(sizes))


def _skipped(reads: list[Read]) -> dict[str, int]:
    total: Counter[str] = Counter(empty=0, undecodable=0, malformed=0, filtered=0)
    for one in reads:
        total.update(one.skipped)
    return dict(total)
