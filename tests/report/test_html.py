"""The page: nothing unescaped, nothing loaded, nothing hidden, the same bytes for the same facts."""

from __future__ import annotations

import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from knockout.judge import RunRecord
from knockout.report.dashboard import Dashboard, load_dashboard
from knockout.report.forest import forest
from knockout.report.html import render_html, write_html
from knockout.report.words import duration, effect, mean_sd, ratio


class Reader(HTMLParser):
    """Collects tags, attributes and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def page(report_facts: dict[str, Any]) -> str:
    return render_html(report_facts)


def test_facts_are_plain_json(report_facts: dict[str, Any]) -> None:
    assert json.loads(json.dumps(report_facts, allow_nan=False)) == report_facts


def test_every_text_is_escaped(page: str) -> None:
    reader = Reader(page)
    assert "script" not in reader.tags
    assert "b" in reader.tags
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; residuals?" in page
    assert "<memory>" not in page
    assert "question: &lt;b&gt;bold&lt;/b&gt;" in page


def test_the_page_loads_nothing(page: str) -> None:
    reader = Reader(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(reader.tags)
    assert all(name not in ("src", "srcset") for name, _ in reader.attributes)
    assert all((value or "").startswith("#") for name, value in reader.attributes if name == "href")
    assert not re.search(r"https?://|@import|url\((?!#)", page)


def test_names_inside_the_pictures_are_unique_to_each(page: str) -> None:
    ids = [value for name, value in Reader(page).attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_what_diverged_or_failed_is_shown(page: str) -> None:
    text = " ".join(Reader(page).text)
    assert "s0, s1, s2 diverged at step 30" in text
    assert "s2 failed at step 12: out of <memory>" in text
    assert "0 of 3" in text


def test_the_page_holds_every_part_in_order(page: str) -> None:
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == [
        "Verdicts",
        "Final metrics",
        "How much is luck",
        "Charts",
        "What it cost",
        "What differs",
        "How to reproduce it",
    ]
    for outcome in ("supported", "refuted", "inconclusive", "not run"):
        assert f">{outcome}</span>" in page
    for text in ("knockout run mask-and-residual --size nano --seeds 3", "sha256:0123abcd", "residual.kind: none"):
        assert text in page


def test_the_page_says_how_effects_are_read_and_what_pruning_saved_over_all_variants(
    report_facts: dict[str, Any], page: str
) -> None:
    assert "so + is worse for a loss; " in page
    assert "p is Holm-adjusted over the study&#39;s claims at a size, and decides. The bar is the interval" in page
    # In each of two searches one trial of five is pruned at step 20 of 60: 2 * 2/3 of 10 trials.
    assert "Tuning, over all variants: 10 trials, 2 pruned: 13% of the tuning tokens saved" in page
    assert "Revision" not in page
    assert "How every variant was searched" not in page
    tune = {"trials": 5, "seeds": 2, "sampler": {"kind": "random"}, "pruner": {"kind": "none"}, "extend": 0}
    tune["depth"] = {"low": 2, "high": 8, "log": False}
    told = render_html({**report_facts, "revision": "4c612c0+", "study": {**report_facts["study"], "tune": tune}})
    assert "<dt>Revision</dt><dd><code>4c612c0+</code></dd>" in told
    searched = (
        "random over depth 2 to 8 (linear), 5 trials a cell on 2 seeds of their own, none beyond the ends, pruner none"
    )
    assert f"How every variant was searched: {searched}." in told


def test_the_shipped_charts_are_all_drawn_in_their_order(report_facts: dict[str, Any], page: str) -> None:
    titles = [chart.title for chart in load_dashboard().charts if "expert" not in chart.title]
    assert [chart["title"] for chart in report_facts["charts"]] == titles
    assert re.findall(r"<figure>\s*<h3>(.*?)</h3>", page) == titles
    assert len(re.findall(r">unigram \d", page)) == 3


def test_generation_loss_is_charted_only_when_a_model_sees_the_future(records: list[RunRecord], make_report: Any) -> None:
    causal = [run for run in records if run.causal]
    titles = [chart["title"] for chart in make_report(causal)["charts"]]
    assert "Validation loss" in titles
    assert "Generation loss" not in titles


def test_the_same_facts_give_the_same_bytes_from_any_thread(report_facts: dict[str, Any], page: str) -> None:
    with ThreadPoolExecutor(3) as pool:
        assert set(pool.map(render_html, [report_facts] * 3)) == {page}


def test_a_report_replaces_the_one_before_and_leaves_no_scraps(report_facts: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    first = write_html(report_facts, folder=folder)
    assert write_html(report_facts, folder=folder) == first
    assert [path.name for path in folder.iterdir()] == ["report.html"]


def test_a_report_that_cannot_be_drawn_leaves_the_old_one(report_facts: dict[str, Any], tmp_path: Path) -> None:
    path = write_html(report_facts, folder=tmp_path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="kind 'pie'"):
        write_html({**report_facts, "charts": [{**report_facts["charts"][0], "kind": "pie"}]}, folder=tmp_path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_study_without_runs_still_has_a_page(make_report: Any) -> None:
    page = render_html(make_report([]))
    assert "no run of no-mask" in page


def test_a_chart_of_unknown_kind_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "report.yaml"
    path.write_text("charts:\n  - kind: pie\n    title: Pie\n")
    with pytest.raises(Exception, match=r"report.yaml:2.*pie.*curves"):
        load_dashboard(path)


def test_a_new_chart_is_one_entry(records: list[RunRecord], make_report: Any) -> None:
    entry = {"kind": "curves", "title": "Gradient norm", "metric": "gradient_norm", "scale": "log"}
    made = make_report(records, dashboard=Dashboard.model_validate({"charts": [entry]}))
    assert "<h3>Gradient norm</h3>" in render_html(made)


def test_a_forest_row_keeps_the_order_of_its_numbers() -> None:
    verdict = {
        "relation": "worse",
        "metric": "val_loss",
        "threshold": 1.0,
        "effect": 5.9,
        "interval": {"low": 5.2, "high": 6.6, "level": 0.95},
    }
    drawn = forest([verdict, {**verdict, "interval": None}])
    row = drawn["rows"][0]
    assert 50 < row["edges"][0] < row["low"] < row["effect"] < row["high"] <= 100
    assert drawn["rows"][1] is None
    assert [tick["label"] for tick in drawn["ticks"]] == ["−1", "−0.1", "0", "0.1", "1"]


def _effect(
    value: float | None, ends: Any, *, relation: str = "worse", metric: str = "val_loss", last: float | None = None
) -> str:
    return effect({"effect": value, "interval": ends, "relation": relation, "metric": metric, "last": last})


def test_the_effect_of_each_shape_is_written_as_what_it_is() -> None:
    def ends(low: float, high: float | None) -> dict[str, float | None]:
        return {"low": low, "high": high, "level": 0.95}

    assert _effect(0.2, ends(0.1, 0.3), relation="trend") == "+0.200 [0.100, 0.300]"
    assert _effect(1.05, ends(1.02, 1.08), relation="ratio") == "× 1.05 [1.02, 1.08]"
    assert _effect(1.05, None, relation="ratio") == "× 1.05 unbounded"
    assert _effect(4.0, ends(2.0, 4.0), relation="knee") == "at 4 [2, 4]"
    assert _effect(4.0, ends(2.0, 8.0), relation="knee", last=8.0) == "at 4 [2, 8 or beyond]"
    assert _effect(8.0, ends(8.0, 8.0), relation="knee", last=8.0) == "at 8 or beyond [8 or beyond, 8 or beyond]"
    assert _effect(16.0, ends(16.0, None), relation="threshold") == "at 16 [16, beyond]"
    assert _effect(None, ends(math.inf, math.inf), relation="threshold") == "beyond [beyond, beyond]"
    assert _effect(None, None, relation="knee") == "–"
    assert _effect(12.5e6, ends(12e6, 13e6), metric="peak_memory_bytes") == "+12.5 MB [12.0, 13.0]"
    assert _effect(-1234.0, ends(-2000.0, -500.0), metric="tokens_per_second") == (
        "−1\u202f234 tokens/s [−2\u202f000, −500]"
    )


def test_only_differences_of_losses_share_the_axis() -> None:
    verdict = {"metric": "val_loss", "threshold": 0.1, "effect": 0.2, "interval": {"low": 0.1, "high": 0.3}}
    relations = ("worse", "better", "higher", "lower", "equivalent", "order", "interaction", "ratio", "knee", "trend")
    drawn = forest([{**verdict, "relation": relation} for relation in relations])
    assert [row is not None for row in drawn["rows"]] == [True] * 5 + [False] * 5
    memory = {**verdict, "relation": "higher", "metric": "peak_memory_bytes"}
    assert forest([memory])["rows"] == [None]


def test_numbers_are_written_for_readers() -> None:
    interval = {"low": -0.5, "high": 0.1, "level": 0.95}
    assert _effect(-0.2, interval) == "−0.200 [−0.500, 0.100]"
    assert _effect(None, None) == "–"
    assert mean_sd({"mean": 3.3, "sd": None}) == "3.300"
    assert (duration(61), duration(7260), duration(None)) == ("1 min 01 s", "2 h 01 min", "–")
    assert (ratio(1.0), ratio(1.25), ratio(None)) == ("same", "+25 %", "–")


def test_an_earlier_look_stands_above_the_verdicts_and_other_flags_below(report_facts: dict[str, Any]) -> None:
    look = {"kind": "looks", "level": "serious", "variant": None, "size": "nano", "sentence": "judged before, at 2 seeds"}
    seed = {"kind": "outlier", "level": "note", "variant": "v", "size": "nano", "sentence": "seed 3 of v lies far off"}
    page = render_html({**report_facts, "fairness": [look, seed]})
    assert page.count("judged before, at 2 seeds.") == 1
    assert page.index("judged before, at 2 seeds.") < page.index('<table class="verdicts">') < page.index("seed 3 of v lies")
    assert "<h2>Fairness</h2>" not in render_html({**report_facts, "fairness": [look]})
