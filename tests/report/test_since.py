"""What the log of results says of a study that was concluded on more than one day."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from knockout.report.results import Section, merge, section
from knockout.report.since import digest, read, since

OLD, NEW = "2026-11-29", "2026-11-30"
DECLARED = """study: mask-and-residual  # a comment
seeds: 3
at: {pico: {tokens: 1000}}
claims:
  - {id: T6.4-peek, says: It learns nothing, expect: {by: 0.5}}
"""
TUNE = {
    "trials": 5,
    "seeds": 1,
    "sampler": {"kind": "grid"},
    "pruner": {"kind": "slack", "startup": 1, "after": 0.25, "slack": 0.3},
    "extend": 2,
    "learning_rate": {"low": 0.0006, "high": 0.0486, "log": True},
}


@pytest.fixture
def facts(report_facts: dict[str, Any]) -> dict[str, Any]:
    """A report's facts, to be changed."""
    changed = copy.deepcopy(report_facts)
    changed["study"] |= {"declaration": DECLARED, "tune": TUNE}
    return changed | {"revision": "4c612c0"}


def of(facts: dict[str, Any], day: str) -> Section:
    return section(facts, size="nano", date=day)


def sections(text: str) -> list[str]:
    """What stands below each marker."""
    return re.split(r"<!-- knockout results .* -->\n", text)[1:]


def line(text: str) -> list[str]:
    """What a section says of the one before, point by point."""
    (found,) = re.findall(rf"^Since {OLD}: (.*)\.$", text, re.MULTILINE)
    return found.split("; ")


def test_a_section_names_the_search_the_revision_and_what_pruning_saved(facts: dict[str, Any]) -> None:
    text = of(facts, NEW).text
    assert "- Search: grid over learning_rate 0.0006 to 0.0486, 5 trials a cell on 1 seed of their own, " in text
    assert "up to 2 more beyond an end, pruner slack (startup 1, after 0.25, slack 0.3)\n" in text
    assert "- Revision: `4c612c0`\n" in text
    # Two searches of five trials, one of each pruned at step 20 of 60: 2 * 2/3 of 10 trials.
    assert "and 10 trials, " in text
    assert "FLOPs; 2 pruned: 13% of the tuning tokens saved\n" in text
    del facts["revision"], facts["study"]["tune"]
    assert not re.search("Revision|Search", of(facts, NEW).text)


def test_below_the_table_stands_how_it_is_read(facts: dict[str, Any]) -> None:
    rows, below = re.search(r"(\| `.* \|)\n\n(Effect: .*)\n", of(facts, NEW).text).groups()  # type: ignore[union-attr]
    assert rows
    assert "so + is worse for a loss" in below
    assert "[interval] is for that claim alone, at 95 %" in below
    assert "p is Holm-adjusted over the study's claims" in below
    assert "for an order" not in below
    facts["verdicts"][0]["relation"] = "order"
    assert "for an order, its weakest step, where + goes as claimed" in of(facts, NEW).text


def test_a_newer_section_says_what_changed_and_the_older_one_is_superseded(facts: dict[str, Any]) -> None:
    old, new = of(facts, OLD), copy.deepcopy(facts)
    first, second, *_ = (verdict for verdict in new["verdicts"] if verdict["outcome"] != "not run")
    before = first["outcome"]
    first["outcome"] = "inconclusive" if before != "inconclusive" else "refuted"
    new["study"]["tuned"][1]["chosen"] = {"learning_rate": 3e-2}
    new["study"]["declaration"] = DECLARED.replace("1000", "2000").replace("by: 0.5", "by: 1.0").replace("a comment", "none")
    new["study"]["tune"] = {**TUNE, "pruner": {"kind": "median", "startup": 2, "after": 0.375}}
    new |= {"revision": "84c6a39+", "versions": {**new["versions"], "torch": "2.14"}}
    declared = {old.key: DECLARED, of(new, NEW).key: new["study"]["declaration"]}
    text = merge(merge(None, sections=[old]), sections=[of(new, NEW)], declared=declared)
    newer, older = sections(text)
    assert newer.startswith(f"## {NEW} · mask-and-residual · nano\n\nSince {OLD}: ")
    assert older.startswith(f"## {OLD} · mask-and-residual · nano (superseded by {NEW})\n")
    assert "Since" not in older
    verdicts, tuned, declaration, search, versions, revision = line(newer)
    assert verdicts == f"`{first['claim']}` {before} → {first['outcome']}"
    assert second["claim"] not in verdicts
    assert tuned == "tuned: no-mask learning_rate 0.01 → 0.03"
    assert declaration == "declaration: at.pico.tokens 1000 → 2000, claims.T6.4-peek.expect.by 0.5 → 1.0"
    assert "pruner slack (startup 1, after 0.25, slack 0.3) → " in search
    assert search.endswith("pruner median (startup 2, after 0.375)")
    assert (versions, revision) == ("torch 2.13 → 2.14", "revision `4c612c0` → `84c6a39+`")
    assert merge(text, sections=[of(new, NEW)], declared=declared) == text, "the same once more changes nothing"


def test_nothing_that_changed_is_said_too(facts: dict[str, Any]) -> None:
    text = merge(merge(None, sections=[of(facts, OLD)]), sections=[of(facts, NEW)])
    said = ["no verdict changed", "no tuned value changed", "same declaration", "same search", "same versions"]
    assert line(sections(text)[0]) == [*said, "same revision"]


def test_what_an_older_section_did_not_record_is_named_so(facts: dict[str, Any]) -> None:
    then = copy.deepcopy(facts)
    del then["revision"], then["study"]["tune"]
    old = of(then, OLD)
    bare = Section(old.study, old.size, old.date, re.sub("- Declaration: .*\n", "", old.text))
    points = line(sections(merge(merge(None, sections=[bare]), sections=[of(facts, NEW)]))[0])
    assert "declaration not recorded then, now `" + digest(DECLARED) + "`" in points
    assert any(point.startswith("search not recorded then, now grid over") for point in points)
    assert points[-1] == "revision not recorded then, now `4c612c0`"
    back = line(sections(merge(merge(None, sections=[of(facts, OLD)]), sections=[of(then, NEW)]))[0])
    assert back[-1] == "revision `4c612c0` then, not recorded now"


def test_of_three_days_each_says_what_changed_since_the_day_before(facts: dict[str, Any]) -> None:
    text = None
    for day in ("2026-11-28", OLD, NEW):
        text = merge(text, sections=[of(facts, day)])
    assert text is not None
    newest, middle, oldest = sections(text)
    assert f"Since {OLD}: " in newest
    assert "Since 2026-11-28: " in middle
    assert "Since" not in oldest
    assert "superseded" not in newest
    assert all(f"(superseded by {NEW})\n" in one for one in (middle, oldest))
    assert merge(text, sections=[Section("another", "nano", NEW, "## another\n\nnothing\n")]).endswith(
        text.partition("-->")[2]
    )


def test_claims_and_settings_that_are_new_or_gone_are_named() -> None:
    old = "| `A` | **supported** | 1 |\n| `B` | **refuted** | 1 |\n\n- Tuned: x to a.rate 0.1, batch 8 (at the low end)\n"
    new = "| `A` | **supported** | 1 |\n| `C` | **not run** | 1 |\n\n- Tuned: x to a.rate 0.1, batch 16; y to a.rate 0.2\n"
    assert read(old).tuned == {"x a.rate": "0.1", "x batch": "8"}
    said = since(new, before=old, date=OLD)
    assert said.startswith(f"Since {OLD}: `C` is new, not run, `B` is gone, was refuted; ")
    assert "; tuned: x batch 8 → 16, y a.rate is new, 0.2; " in said


def test_the_comments_of_a_declaration_are_none_of_it() -> None:
    assert digest(DECLARED) == digest(DECLARED.replace("a comment", "another one"))
    assert digest(DECLARED) != digest(DECLARED.replace("seeds: 3", "seeds: 4"))
