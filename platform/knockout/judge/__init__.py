"""From finished runs to verdicts: paired statistics, exact where seeds are few, all conditions spelled out.

The invariant: a verdict is computed from run records and the study's declaration alone; nothing here reads
a file, a clock or a server, so the same records always give the same verdict.
"""

from knockout.judge.judgement import Judgement
from knockout.judge.judging import decide
from knockout.judge.records import RunRecord
from knockout.judge.verdict import Interval, Outcome, SizeCompetence, Verdict

__all__ = ["Interval", "Judgement", "Outcome", "RunRecord", "SizeCompetence", "Verdict", "decide"]
