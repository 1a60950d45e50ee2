"""What a method is, in words: shown by `palaestra show`, checked by the conformance test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from palaestra.types import value


@value
class Card:
    """`changes` says per stage what the method does differently from its parent; `source` how sure the formulas are."""

    id: str
    family: str
    title: str
    claim: str
    shape: Literal["recipe", "pipeline", "program"] = "recipe"
    paper: str = ""  # "arXiv:2402.03300"
    parent: str = ""  # id of the recipe that `build` varies
    changes: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    paper_scale: str = ""  # model, data and settings of the paper
