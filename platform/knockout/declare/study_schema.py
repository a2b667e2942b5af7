"""The JSON Schema of a study, for editors: the same models that check it, and names of settings in patches."""

from __future__ import annotations

from typing import Any

from knockout.declare.architecture import Architecture
from knockout.declare.recipe import Recipe
from knockout.declare.study import Study


def study_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a study's file."""
    schema = Study.model_json_schema(by_alias=True)
    definitions = schema.setdefault("$defs", {})
    patch: dict[str, Any] = {"type": "object", "title": "Patch", "properties": {}}
    for model in (Architecture, Recipe):
        part = model.model_json_schema(by_alias=True)
        definitions.update(part.pop("$defs", {}))
        patch["properties"] |= part["properties"]
    patch["patternProperties"] = {r"^[a-z_]+(\.[a-z_]+)+$": {}}
    patch["additionalProperties"] = False
    definitions["Patch"] = patch
    reference = {"$ref": "#/$defs/Patch"}
    schema["properties"]["baseline"] |= reference
    for name in ("variants", "at"):
        schema["properties"][name]["additionalProperties"] = reference
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
