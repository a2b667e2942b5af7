"""`knockout nightly`: fresh seeds each time, a history that grows, and an exit code that tells a flipped claim."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from knockout.history.rows import Row
from knockout.history.table import read
from knockout.ledger.workspace import open_workspace

STUDY = """study: nights
question: Does a tiny stack learn a chain without its residual path?
corpus: tiny
size: pico
baseline:
  {width: 16, heads: 2, depth: 2, context: 16, vocabulary: 32, batch: 4, tokens: 3200, warmup_steps: 10, evaluations: 5}
variants:
  no-residual: {residual: {kind: none}}
seeds: 2
controls: {aa: false}
competence: {floor: none}
claims:
  - id: one
    says: It learns less without
    expect: {variant: no-residual, is: worse, than: baseline, by: 0.01}
"""


HOOKED = """if True:
    import sys
    from datetime import datetime
    from zoneinfo import ZoneInfo
    from knockout.cli.night import Order, spend
    from knockout.declare.schedules import RunCommand
    from knockout.ledger.workspace import open_workspace
    keep = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read()); raise SystemExit(7)"
    hook = RunCommand(kind="command", run=[sys.executable, "-c", keep, sys.argv[1]])
    day = datetime(2026, 1, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    order = Order("The sweep n", ("ablations/nights.yaml",), None, None, day, hook)
    night = spend(order, workspace=open_workspace(), from_seed=400)
    sys.exit(1 if night.sweep.failed else 0)"""
"""A sweep, as of a schedule in Berlin an hour into the year, whose hook keeps what it reads and fails."""


def page_of(said: str) -> Path:
    """The page that the last line names."""
    return Path(said.strip().splitlines()[-1].split()[-1])


def history(home) -> list[Row]:
    return read(open_workspace(home.folder))


def test_a_night_is_held_against_the_nights_before_it(home, tmp_path, project):
    home.project = tmp_path / "project"
    for name, text in {
        "ablations/nights.yaml": STUDY,
        "data/tiny.yaml": (project / "data" / "tiny.yaml").read_text(),
    }.items():
        (home.project / name).parent.mkdir(parents=True)
        (home.project / name).write_text(text)
    code, said = home.knockout("nightly", "--studies", "ablations/*.yaml", "--from-seed", "300")
    assert code == 0, said
    first = history(home)
    assert {row.first_seed for row in first} == {300}
    assert {run.meaning["seed"] for run in home.runs()} == {300, 301}
    losses = {row.name: row.mean for row in first if row.metric == "val_loss"}
    assert losses.keys() == {"baseline", "no-residual"}
    outcome = next(row.outcome for row in first if row.kind == "claim")

    # As if the night before had found the opposite, and a loss ten nats lower.
    opposite = {"supported": "refuted", "refuted": "supported", "inconclusive": "supported"}[outcome or ""]
    (file,) = (home.folder / "history").glob("*.parquet")
    table, of = pl.read_parquet(file), pl.col("metric")
    table.with_columns(
        outcome=pl.when(of == "effect").then(pl.lit(opposite)).otherwise(pl.col("outcome")),
        mean=pl.when(of == "val_loss").then(pl.col("mean") - 10.0).otherwise(pl.col("mean")),
    ).write_parquet(file)

    (home.folder / "sweeps" / "20260101-000000").mkdir()  # as of another schedule that began in the same second
    told = tmp_path / "told ü.json"
    code, said = home.knockout(str(told), code=HOOKED)
    tonight = next(row.outcome for row in history(home) if row.kind == "claim" and row.first_seed == 400)
    flipped = {opposite, tonight} == {"supported", "refuted"}
    assert code == (1 if flipped else 0), said
    page = page_of(said)
    text, data = page.read_text(), json.loads(page.with_suffix(".json").read_text())
    kinds = {change["kind"] for change in data["changes"]}
    assert "drifted" in kinds
    assert ("flipped" in kinds) == data["flipped"] == flipped
    assert "| drifted | nights | val_loss of baseline at pico is" in text
    assert "seeds from 400, against 1 earlier sweep" in text
    assert page.with_suffix(".html").read_text().count("<td>drifted</td>") == text.count("| drifted |")
    assert json.loads(told.read_text()) == {**data, "untold": None, "page": str(page)}  # the hook was told before it failed
    assert data["untold"].endswith("ended with exit code 7")
    assert f"- nobody was told: {data['untold']}" in text
    assert page.parent.name == "20260101-000000-2"  # in UTC, as the history's files
    assert "2026-01-01 01:00 CET" in text


def test_what_cannot_be_run_is_told_and_fails(home):
    code, said = home.knockout("nightly", "--studies", "smal", "--from-seed", "300")
    assert code == 1
    page = page_of(said)
    for told in (page.read_text(), json.loads(page.with_suffix(".json").read_text())["missed"][0], said):
        assert "no study 'smal' in ablations/" in told
    assert "smal: refused (exit code 2): no study 'smal'" in page.read_text()
    assert ": without verdicts: 1." in page.read_text()
    assert "nothing changed" not in page.read_text()
    assert home.knockout("nightly")[0] == 2
    assert home.knockout("nightly", "--studies", "nothing/*.yaml")[0] == 2
