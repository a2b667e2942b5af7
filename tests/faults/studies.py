"""The studies of this suite."""

from __future__ import annotations

from pathlib import Path

from commands import TINY, write_files

MODEL = """  {width: 16, heads: 2, depth: 2, context: 16, vocabulary: 32, batch: 4, learning_rate: 0.005, warmup_steps: 10,
   accumulate: 2, dropout: 0.1, evaluations: 20, tokens: TOKENS}
"""
RESUMED = f"""study: resumed
question: Does a run that was killed end as one that was not?
corpus: tiny
size: pico
baseline:
{MODEL.replace("TOKENS", "12800")}variants:
  no-residual: {{residual: {{kind: none}}}}
seeds: 1
competence: {{floor: unigram, by: 0.1}}
"""
"""200 steps of 64 tokens: four epochs of the corpus; accumulation, dropout, warm-up and cosine; a checkpoint each 10."""
SIBLING = RESUMED.replace("study: resumed", "study: sibling").replace("no-residual: {residual: {kind: none}}",
    "no-norm: {norm: {kind: none}}").replace("no-residual", "no-norm")  # fmt: skip
TUNED = RESUMED.replace("study: resumed", "study: tuned").replace("seeds: 1", """seeds: 1
tune:
  learning_rate: {low: 1.0e-3, high: 1.0e-1}
  trials: 3
  pruner: {kind: median, startup: 1, after: 0.25}""").replace("12800", "6400")  # fmt: skip
SETTLED = RESUMED.replace("study: resumed", "study: settled").replace("seeds: 1", "seeds: 3\nsettle: [4]").replace(
    "no-residual: {residual: {kind: none}}", "again: {warmup_steps: 11}").replace("12800", "3200") + """claims:
  - id: one
    says: It learns less
    expect: {variant: again, is: worse, than: baseline, by: 0.0001}
"""  # fmt: skip
"""The variant is so like the baseline that its claim stays open, and its further seeds are wanted."""


def write_project(folder: Path) -> Path:
    """The folder of a project with the studies of this suite."""
    return write_files(folder, files={
        "data/tiny.yaml": TINY, "ablations/resumed.yaml": RESUMED, "ablations/sibling.yaml": SIBLING,
        "ablations/tuned.yaml": TUNED, "ablations/settled.yaml": SETTLED,
    })  # fmt: skip
