"""The axes on which every row of the catalogue is placed: their columns and values, as
`surveys/axes.toml` has them. Nothing heavy is imported here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

FOLDER = "surveys"  # of the package


@dataclass(frozen=True)
class AxisColumn:
    """A column of the taxonomy: the axis it belongs to, what it asks, and what its values mean."""

    name: str
    axis: str
    asks: str
    values: Mapping[str, str]


@cache
def columns() -> Mapping[str, AxisColumn]:
    """The columns by name, in their order."""
    text = resources.files("palaestra").joinpath(FOLDER, "axes.toml").read_text(encoding="utf-8")
    return {c["name"]: AxisColumn(**c) for c in tomllib.loads(text)["column"]}
