"""Colours: one a variant, the same in every chart of a report.

The invariant: told apart by colour-blind readers (Okabe and Ito, "Color universal design", 2008), and by
dashes where there are more variants than colours. Ink stands for the page's text colour, so charts follow
light and dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from knockout.declare.claim import BASELINE

INK = "#010203"
"""Drawn by matplotlib as this colour, replaced by the page's text colour when the picture is finished."""

_VARIANTS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1")
_DASHES = ("solid", "dashed", "dotted", "dashdot")
_PARTS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999")


@dataclass(frozen=True)
class Style:
    """How a line is drawn."""

    color: str
    dash: str


def variant_styles(variants: Sequence[str]) -> dict[str, Style]:
    """A style for each variant, by its place in the study; the baseline is ink."""
    others = [name for name in variants if name != BASELINE]
    styles = {BASELINE: Style(INK, "solid")} if BASELINE in variants else {}
    for place, name in enumerate(others):
        dash = _DASHES[place // len(_VARIANTS) % len(_DASHES)]
        styles[name] = Style(_VARIANTS[place % len(_VARIANTS)], dash)
    return styles


def part_colors(parts: Sequence[str]) -> dict[str, str]:
    """A colour for each part of the parameter split (Tol, "Colour schemes", SRON/EPS/TN/09-002, bright)."""
    return {part: _PARTS[place % len(_PARTS)] for place, part in enumerate(parts)}
