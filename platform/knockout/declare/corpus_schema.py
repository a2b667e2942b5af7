"""The JSON Schema of a corpus, for editors: the same models that check it."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from knockout.declare.corpus import Corpus


class _Recursive(GenerateJsonSchema):
    """A condition may hold conditions; where that is so, an editor finds the member by trying, not by the key `is`."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {*GenerateJsonSchema.ignored_warning_kinds, "skipped-discriminator"}


def corpus_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a corpus' file."""
    schema = Corpus.model_json_schema(by_alias=True, schema_generator=_Recursive)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
