"""How runs are described to MLflow: rows of metrics, settings, what verdicts may rest on.

The invariant: pure functions, so that what is told again is told in the same words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from knockout.ledger.identity import flatten


def metric_rows(table: Any) -> Iterator[tuple[str, int, float, float]]:
    """The rows of a metric file as the mirror takes them."""
    columns = (table[name].to_pylist() for name in ("metric", "step", "value", "time"))
    return zip(*columns, strict=True)


def fairness_tag(flags: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """One tag that says what verdicts may rest on; none where there is nothing to say."""
    serious = [flag["sentence"] for flag in flags if flag["level"] == "serious"]
    return {"fairness": "; ".join(serious)} if serious else {}


def settings_of(meaning: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of a run under its dotted path, the same that a patch would use."""
    settings = flatten({**meaning["architecture"], **meaning["recipe"], "seed": meaning["seed"]})
    return {path: value for path, value in settings.items() if value is not None}
