"""What a method is, in words: shown by `palaestra show`, checked by the conformance test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from palaestra.types import value


@value
class Size:
    """The size of a paper's runs, for a dry run without weights; 0 = not said there, the recipe's own then.

    `model` is a name of `bench.paper.SHAPES`; where a paper trains several, one of them, and where it only
    says how large, a common one of that size.
    """

    model: str
    prompts: int = 0  # a step
    samples: int = 0  # a prompt
    tokens: int = 1024  # of an answer at most
    lr: float = 0.0


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
    size: Size | None = None  # None: the paper trains no language model, or does not say which
