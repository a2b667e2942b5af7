"""Everything that a report says, as plain JSON data.

The invariant: what `facts` returns holds only text, finite numbers, booleans, nulls, lists and mappings,
and depends on its arguments and the runs' metric files alone; the page is drawn from it and from nothing
else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from knockout.judge.flag import Flag
from knockout.judge.judgement import Judgement
from knockout.judge.records import RunRecord, sizes_of, variants_of
from knockout.report import figures, tables
from knockout.report.charts import tabulate
from knockout.report.dashboard import Dashboard, load_dashboard


def facts(
    study: Mapping[str, Any],
    *,
    records: Sequence[RunRecord],
    judgement: Judgement,
    floors: Mapping[str, Mapping[str, float]],
    manifest_digest: str,
    versions: Mapping[str, str],
    machine: Mapping[str, Any],
    seconds: Mapping[str, float],
    command: str,
    controls: Sequence[RunRecord] = (),
    fairness: Sequence[Flag] = (),
    revision: str | None = None,
    dashboard: Dashboard | None = None,
) -> dict[str, Any]:
    """Gather a report's facts.

    `study` holds name, question, source {document, section} or None, corpus, sizes, seeds, decide, declaration (the YAML
    text) and patches (variant -> patch), and where settings were matched or searched, matched, tune and tuned. `floors` are,
    for each size, the corpus' cross-entropies in nats per token. `seconds` holds the submission's total and training time.
    `command` makes the same study again. `controls` are runs that cost something and are in no figure.
    `fairness` is what may favour a variant. `revision` is the code's commit, where it is known. `dashboard` defaults
    to the declared one. Raises what `load_dashboard` raises.
    """
    charts = (dashboard or load_dashboard()).charts
    every = [*records, *controls]
    made = [tabulate(chart, records=records, floors=floors, tuned=study.get("tuned", ())) for chart in charts]
    return {
        "study": plain(study),
        "variants": variants_of(records),
        "sizes": [size for size in study["sizes"] if size in sizes_of(records)],
        "verdicts": plain(judgement.verdicts),
        "competence": plain(judgement.competence),
        "controls": plain(judgement.controls),
        "noise": plain(judgement.noise),
        "fairness": plain(fairness),
        "floors": plain(floors),
        "sightings": tables.sightings(records),
        "finals": plain(tables.finals(records)),
        "charts": plain([chart for chart in made if chart is not None]),
        "curves_missing": figures.curves_missing(records),
        "runs": plain(figures.costs(every).to_dicts()),
        "cost": plain([*tables.cost_by_variant(every), *tables.tuning_by_variant(study.get("tuned", ()))]),
        "parameters": plain(tables.parameters(records)),
        "differences": plain(tables.differences(records, patches=study.get("patches", {}))),
        "seconds": plain(seconds),
        "command": command,
        "manifest_digest": manifest_digest,
        "versions": plain(versions),
        "revision": revision,
        "machine": plain(machine),
    }


def plain(value: Any) -> Any:
    """The value as JSON data: mappings and lists, with null for a number that is not finite."""
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case BaseModel():
            return plain(value.model_dump())
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case Path():
            return str(value)
        case list() | tuple():
            return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"a report holds plain data only, not {type(value).__name__}")
