"""What a paper says, on one card: shown by `palaestra show`, checked by the conformance test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from palaestra.needs.declared import Requirements
from palaestra.types import value_class

UNKNOWN = {  # what the fields of a size are called where they are left open
    "prompts": "prompts a step",
    "samples": "answers a prompt",
    "tokens": "length of an answer",
    "lr": "learning rate",
}


@value_class
class Size:
    """What a paper's runs are: in words, and in numbers for a dry run without weights; 0 = not
    known to us, the recipe's then.

    `model` is a name of `bench.paper.SHAPES`; where a paper trains several, one of them, and where
    it only says how large, a common one of that size; "" = the paper trains no language model, or
    none of known size.
    """

    setting: str = ""  # model, data and settings of the paper
    model: str = ""
    prompts: int = 0  # a step
    samples: int = 0  # a prompt
    # a step, where only their number is known: as many prompts as the recipe's samples make of it
    answers: int = 0
    tokens: int = 0  # of an answer at most, all its turns together
    lr: float = 0.0
    lora: int = 0  # rank of the adapters; 0 = all weights are trained
    # of `build`, or fields by path, unlike the defaults
    arguments: Mapping[str, Any] = field(default_factory=dict)
    # 1e9 parameters of what the paper runs but is not built
    beside: Mapping[str, float] = field(default_factory=dict)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The fields without which the recipe's own numbers stand."""
        limits = {
            "prompts": self.prompts or self.answers,
            "samples": self.samples,
            "tokens": self.tokens,
            "lr": self.lr,
        }
        return tuple(name for name, given in limits.items() if not given)


@value_class
class Card:
    """A method and its paper. What else there is to say of a method is computed.

    Args:
        use: one sentence: when it helps, and when not.
        lacks: what the abstract names and is not here, a sentence each.
        grade: against the abstract, by a reader who did not write it: A = all of it, on what a
            user brings; B = a part is missing and said; C = a toy, or the mechanism only; "" = not
            graded.
    """

    title: str
    claim: str = ""  # of the paper
    paper: str = ""  # "arXiv:2402.03300"
    source: str = ""  # where the formulas come from, and how sure that is
    size: Size | None = None
    model: str = ""  # trained where the user names no problem; "" = the small one of every recipe
    task: str = ""  # learned where the user names no problem; "" = as every recipe
    # in which questions of --data are asked, as --env names it, those with --docs in a search; "" =
    # in none
    world: str = ""
    needs: Requirements = Requirements()  # of the user
    use: str = ""
    lacks: tuple[str, ...] = ()
    grade: Literal["", "A", "B", "C"] = ""
