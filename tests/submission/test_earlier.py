"""Earlier looks at the same claims, as a real ledger remembers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from knockout.account.matching import plan_study
from knockout.declare.load import Overrides, load_study
from knockout.declare.plan import Plan
from knockout.judge.verdict import Verdict, blank
from knockout.ledger.process import this_process
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import open_workspace
from knockout.submission.earlier import earlier_looks

STUDY = """\
study: trial
question: Is it looked at once?
corpus: python-source
size: pico
variants:
  a: {norm: {kind: rms}}
claims:
  - {id: A, says: it, expect: {variant: a, is: worse}}
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(open_workspace(tmp_path / "home"))
    yield opened
    opened.close()


@pytest.fixture
def planned(tmp_path: Path) -> Callable[..., Plan]:
    def make(seeds: int | None = None, *, text: str = STUDY, **changes: Any) -> Plan:
        path = tmp_path / "study.yaml"
        path.write_text(text)
        return plan_study(load_study(path, overrides=Overrides(seeds=seeds, **changes)))

    return make


def verdicts(plan: Plan, *, num_seeds: int | None = None) -> list[Verdict]:
    """The verdicts of a plan all of whose runs are done, or at fewer seeds."""
    seeds = len(plan.study.seeds_at(plan.look)) if num_seeds is None else num_seeds
    empty = [blank(claim, size=size, outcome="refuted", reason="") for claim in plan.study.claims for size in sizes(plan)]
    return [replace(one, p=0.01 if seeds > 1 else None, num_seeds=seeds) for one in empty]


def sizes(plan: Plan) -> list[str]:
    return list(plan.study.size_names)


def concluded(ledger: Ledger, plan: Plan, *, state: str = "done", num_seeds: int | None = None) -> None:
    name = f"{len(ledger.submissions())}"
    ledger.submit(name, study="trial", plan=plan.text, owner=this_process(), runs=[], arguments=plan.arguments)
    found = [{"size": v.size, "p": v.p, "num_seeds": v.num_seeds} for v in verdicts(plan, num_seeds=num_seeds)]
    study = {"declaration": plan.text, "seeds": list(plan.study.seeds_at(plan.look))}
    ledger.conclude(name, state=state, reason=None, facts={"study": study, "verdicts": found})


def told(ledger: Ledger, plan: Plan) -> list[str]:
    flags = earlier_looks(plan, verdicts=verdicts(plan), ledger=ledger)
    assert all((flag.kind, flag.level) == ("looks", "serious") for flag in flags)
    return [flag.sentence for flag in flags]


def test_looking_again_with_more_seeds_is_told_with_every_earlier_look(ledger: Ledger, planned: Callable[..., Plan]):
    for seeds in (2, 3, 4, 3):
        concluded(ledger, planned(seeds))
    assert told(ledger, planned(6)) == [
        "these claims were judged in this workspace before, at 2, 3 and 4 seeds: the error rate of 5 % holds for one look; "
        "`settle:` declares further looks"
    ]
    assert "before, at 2 seeds:" in told(ledger, planned(3))[0], "fewer seeds than now"
    assert told(ledger, planned(2)) == []


def test_the_same_seeds_again_and_other_seeds_are_no_look(ledger: Ledger, planned: Callable[..., Plan]):
    concluded(ledger, planned(3))
    concluded(ledger, planned(3), state="failed")
    concluded(ledger, planned(2, from_seed=10))
    concluded(ledger, planned(1))  # one seed alone judges nothing
    assert told(ledger, planned(3)) == []


def test_what_was_judged_before_its_time_was_over_is_a_look(ledger: Ledger, planned: Callable[..., Plan]):
    concluded(ledger, planned(6), state="timed-out", num_seeds=2)
    assert "before, at 2 seeds:" in told(ledger, planned(6))[0]


@pytest.mark.parametrize(
    "other",
    [
        {"text": STUDY.replace("is: worse", "is: better")},
        {"settings": ("tokens=409600",)},
        {"size": "nano"},
    ],
)
def test_other_claims_other_settings_and_other_sizes_are_another_question(
    other: dict[str, Any], ledger: Ledger, planned: Callable[..., Plan]
):
    concluded(ledger, planned(2, **other))
    assert told(ledger, planned(3)) == []
    assert len(told(ledger, planned(3, **other))) == 1


def test_declared_looks_are_counted_by_their_levels_and_are_not_told(ledger: Ledger, planned: Callable[..., Plan]):
    text = STUDY + "seeds: 3\nsettle: [6, 12]\n"
    first = planned(text=text)
    concluded(ledger, first)
    later = planned(text=text, settle=True).at_look(1, variants=["a"])
    assert told(ledger, later) == []
    concluded(ledger, planned(2, text=text))
    assert "before, at 2 seeds:" in told(ledger, later)[0]


def test_sizes_are_looked_at_each_for_itself(ledger: Ledger, planned: Callable[..., Plan]):
    concluded(ledger, planned(2, size="nano"))
    both = planned(3, text=STUDY.replace("size: pico", "sizes: [pico, nano]"))
    (flag,) = earlier_looks(both, verdicts=verdicts(both), ledger=ledger)
    assert flag.size == "nano"
    assert flag.sentence.startswith("at nano these claims were judged in this workspace before, at 2 seeds")
