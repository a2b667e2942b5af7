"""Small architectures: the default one, and one for every member of every slot, read off the unions."""

from __future__ import annotations

from typing import Any, get_args

from knockout.declare.architecture import Architecture

DIMENSIONS: dict[str, Any] = {"width": 16, "depth": 2, "heads": 4, "context": 12, "vocabulary": 11}

UNMASKED: dict[str, Any] = {"kind": "multi_head", "causal": False}
COMPANY: dict[str, Any] = {
    "residual-deepnorm": {"norm": {"kind": "layer", "placement": "post"}},
    "objective-masked": {"skeleton": {"kind": "encoder"}, "attention": UNMASKED},
    "skeleton-encoder": {"objective": {"kind": "masked"}, "attention": UNMASKED},
    "skeleton-encoder_decoder": {"objective": {"kind": "prefix", "share": 0.5}},
}
"""What a kind cannot stand without."""


def declare_small(**changes: Any) -> Architecture:
    return Architecture.model_validate({**DIMENSIONS, **changes})


def _every_kind() -> dict[str, Architecture]:
    found = {}
    for slot, field in Architecture.model_fields.items():
        annotation: Any = field.annotation
        for member in get_args(annotation) or (annotation,):
            if "kind" not in getattr(member, "model_fields", {}):
                continue
            required = {name: 2 for name, inner in member.model_fields.items() if inner.is_required()}
            kind = member.model_fields["kind"].default
            name = f"{slot}-{kind}"
            found[name] = declare_small(**{slot: {"kind": kind, **required}}, **COMPANY.get(name, {}))
    return found


KINDS = _every_kind()
