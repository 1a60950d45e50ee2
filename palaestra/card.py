"""What a method is, in words: shown by `palaestra show`, checked by the conformance test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from palaestra.types import value

UNKNOWN = {  # what the fields of a size are called where they are left open
    "prompts": "prompts a step",
    "samples": "answers a prompt",
    "tokens": "length of an answer",
    "lr": "learning rate",
}


@value
class Size:
    """What a paper's runs are, for a dry run without weights; 0 = not known to us, the recipe's own then.

    `model` is a name of `bench.paper.SHAPES`; where a paper trains several, one of them, and where it only
    says how large, a common one of that size.
    """

    model: str
    prompts: int = 0  # a step
    samples: int = 0  # a prompt
    answers: int = 0  # a step, where only their number is known: as many prompts as the recipe's samples make of it
    tokens: int = 0  # of an answer at most, all its turns together
    lr: float = 0.0
    lora: int = 0  # rank of the adapters; 0 = all weights are trained
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of `build`, or fields by path, unlike the defaults
    beside: Mapping[str, float] = field(default_factory=dict)  # 1e9 parameters of what the paper runs but is not built

    @property
    def unknown(self) -> tuple[str, ...]:
        """The fields without which the recipe's own numbers stand."""
        told = {"prompts": self.prompts or self.answers, "samples": self.samples, "tokens": self.tokens, "lr": self.lr}
        return tuple(name for name, given in told.items() if not given)


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
    size: Size | None = None  # None: the paper trains no language model, or none of known size
