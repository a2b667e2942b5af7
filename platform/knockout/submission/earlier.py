"""Earlier looks at a study in the same workspace, which its error rate does not count.

The invariant: read only, from what concluded submissions reported. The same seeds again are no look, nor are other seeds,
nor looks that the study declares.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from knockout.declare.document import parse_document
from knockout.declare.plan import Plan
from knockout.judge import Verdict
from knockout.judge.flag import Flag
from knockout.judge.sentences import listed
from knockout.ledger.conclusions import Conclusion, conclusions
from knockout.ledger.store import Ledger


def earlier_looks(plan: Plan, *, verdicts: Sequence[Verdict], ledger: Ledger) -> list[Flag]:
    """For each size at which the same claims of this study were judged here before at fewer seeds, at how many.

    An earlier look is a concluded submission with the same claims and the same settings of the command line, whose seeds are
    among the present ones. Seeds are counted as they were judged: who ran out of time has looked at those that were done.

    Raises:
        WorkspaceError: the ledger cannot be read.
    """
    done = (plan.text, plan.arguments)
    before = [one for one in conclusions(ledger, study=plan.study.study, but=done) if _same_question(one, plan=plan)]
    flags = []
    for size in plan.study.size_names:
        now = max((v.num_seeds for v in verdicts if v.size == size and v.p is not None), default=0)
        counts = {_judged_seeds(one.facts, size=size) for one in before}
        undeclared = sorted(n for n in counts - set(_declared(plan)) if 0 < n < now)
        if undeclared:
            flags.append(Flag("looks", "serious", None, size, _sentence(undeclared, size=size, plan=plan)))
    return flags


def _same_question(earlier: Conclusion, *, plan: Plan) -> bool:
    """Whether a submission judged the same claims, on some of the seeds that are judged now."""
    study = earlier.facts["study"]
    alike = _claims(study["declaration"]) == _claims(plan.text) and _set(earlier.arguments) == _set(plan.arguments)
    return alike and set(study["seeds"]) <= set(plan.study.seeds_at(plan.look))


def _claims(text: str) -> Any:
    return parse_document(text, file="study").data.get("claims")


def _set(arguments: str) -> list[str]:
    """What the command line set in every cell."""
    return sorted(value for option, value in pairwise(shlex.split(arguments)) if option == "--set")


def _judged_seeds(facts: Mapping[str, Any], *, size: str) -> int:
    """The most seeds at which a claim was judged at that size; 0 where none was."""
    return max(_counts(facts["verdicts"], size=size), default=0)


def _counts(verdicts: Sequence[Mapping[str, Any]], *, size: str) -> Iterator[int]:
    yield from (one["num_seeds"] for one in verdicts if one["size"] == size and one["p"] is not None)


def _declared(plan: Plan) -> tuple[int, ...]:
    """How many seeds there are at the looks whose levels sum to alpha."""
    return plan.study.looks if plan.study.settle is not None else ()


def _sentence(counts: Sequence[int], *, size: str, plan: Plan) -> str:
    seeds = "1 seed" if counts == [1] else f"{listed([str(n) for n in counts])} seeds"
    at = f"at {size} " if len(plan.study.size_names) > 1 else ""
    rate = f"the error rate of {100 * plan.study.decide.alpha:g} % holds for one look"
    return f"{at}these claims were judged in this workspace before, at {seeds}: {rate}; `settle:` declares further looks"
