"""`knockout bench`: what a run costs beside its training stays small, and does not grow with how many there are."""

from __future__ import annotations

import json

LIMIT_SECONDS = 0.3
"""Of processor time, a run."""


def test_a_run_costs_little_and_no_more_after_many(home):
    code, said = home.knockout("bench", "--runs", "40", "--runs", "160", "--json")
    assert code == 0, said
    few, many = json.loads(said[said.index("[") :])
    assert (few["runs"], many["runs"]) == (40, 160)
    assert max(few["cpu_seconds"], many["cpu_seconds"]) < LIMIT_SECONDS
    assert many["cpu_seconds"] < 1.5 * few["cpu_seconds"]
    assert many["peak_bytes"] < 1.25 * few["peak_bytes"]
    assert many["seconds"] > 160 * 0.1 / 16
