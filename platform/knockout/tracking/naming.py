"""What knockout's words are called in MLflow: tags, parameters, metric keys, final statuses.

The invariant: two different values never look the same. A value that is too long for MLflow keeps its
beginning and the digest of the whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Literal

State = Literal["done", "diverged", "pruned", "failed", "cancelled", "timed-out"]

STATUS: Mapping[State, str] = {
    "done": "FINISHED",
    "diverged": "FINISHED",
    "pruned": "KILLED",
    "failed": "FAILED",
    "cancelled": "KILLED",
    "timed-out": "KILLED",
}

PREFIX = "knockout."
IDENTITY = f"{PREFIX}identity"
SUBMISSION = f"{PREFIX}submission"
STATE = f"{PREFIX}state"
REASON = f"{PREFIX}reason"
ROLE = f"{PREFIX}role"
DIVERGED = f"{PREFIX}diverged"
PARENT = "mlflow.parentRunId"
DESCRIPTION = "mlflow.note.content"

MAX_PARAM_CHARACTERS = 500
MAX_TAG_CHARACTERS = 5_000
MAX_KEY_CHARACTERS = 250


def tag_key(name: str) -> str:
    """`variant` -> `knockout.variant`; keys of MLflow's own stay."""
    return name if name.startswith((PREFIX, "mlflow.")) else f"{PREFIX}{allowed(name)}"


def tags(values: Mapping[str, object]) -> dict[str, str]:
    """Tags as MLflow takes them."""
    return {tag_key(name): text(value, limit=MAX_TAG_CHARACTERS) for name, value in values.items()}


def params(values: Mapping[str, object]) -> dict[str, str]:
    """Parameters as MLflow takes them: short scalars."""
    return {allowed(name): text(value, limit=MAX_PARAM_CHARACTERS) for name, value in values.items()}


def allowed(name: str) -> str:
    """A key with only the characters that MLflow accepts: letters, digits and _ - . space : /"""
    return re.sub(r"[^\w\-. :/]", "_", name)[:MAX_KEY_CHARACTERS]


def text(value: object, *, limit: int) -> str:
    """A string as it is, anything else as JSON; a digest of the whole replaces what is too long."""
    whole = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    if len(whole) <= limit:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:16]
    return f"{whole[: limit - 32]}… sha256:{digest}"


def equals(key: str, value: str) -> str:
    """A search filter for runs with this tag. ValueError if the value cannot be quoted."""
    if "'" in value:
        raise ValueError(f"{value!r} for tag {key} holds a quotation mark, which MLflow's filters cannot express")
    return f"tags.`{key}` = '{value}'"
