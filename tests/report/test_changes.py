"""The page of a sweep: its first line says what changed and what is missing, and never that nothing changed where all is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from knockout.report.changes import Sweep, write_pages

SWEEP = Sweep(
    title="The sweep n1", when="2026-11-30 02:00 CET", first_seed=253_100, code="c0de", changes=(),
    verdicts=(("s", "one", "pico", "supported"),), missed=(), nights=2,
)  # fmt: skip
MISSED = ("smal: refused (exit code 2): no study '<smal>'",)


def pages(sweep: Sweep, folder: Path) -> tuple[str, str, dict]:
    page = write_pages(sweep, folder=folder)
    return page.read_text(), page.with_suffix(".html").read_text(), json.loads(page.with_suffix(".json").read_text())


def test_a_sweep_that_missed_a_study_says_why_everywhere_and_not_that_nothing_changed(tmp_path):
    text, html, data = pages(replace(SWEEP, verdicts=(), missed=MISSED), tmp_path)
    assert "against 2 earlier sweeps: without verdicts: 1." in text
    assert f"- {MISSED[0]}" in text
    assert "<li>smal: refused (exit code 2): no study &#39;&lt;smal&gt;&#39;</li>" in html
    assert data["missed"] == list(MISSED)
    assert not any("nothing changed" in page for page in (text, html))


def test_a_sweep_with_seeds_that_were_there_says_so(tmp_path):
    text, _, data = pages(SWEEP, tmp_path)
    assert "seeds from 253,100, against 2 earlier sweeps: nothing changed." in text
    assert data["repeats"] is None
    text, _, data = pages(replace(SWEEP, repeats="2026-11-30 01:06"), tmp_path)
    assert "seeds from 253,100 (the same seeds as 2026-11-30 01:06, which is not counted), against 2 earlier" in text
