"""All that is concluded from a study's runs."""

from __future__ import annotations

from dataclasses import dataclass

from knockout.judge.controls import ControlResult
from knockout.judge.noise import SizeNoise
from knockout.judge.verdict import SizeCompetence, Verdict


@dataclass(frozen=True)
class Judgement:
    """Every claim's verdict at every size, what the sizes' baselines had learnt, what the controls say, and the noise."""

    verdicts: tuple[Verdict, ...]
    competence: tuple[SizeCompetence, ...]
    controls: tuple[ControlResult, ...] = ()
    noise: tuple[SizeNoise, ...] = ()
