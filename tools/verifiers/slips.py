"""Formulas that are wrong for certain: the question again, work left to be done, a number one off.
Makers as in `mistakes`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from palaestra.verifiers.answers.final import gold_of, parse_number, strip_markup
from palaestra.verifiers.maths.text import pieces, squeeze
from palaestra.verifiers.table import Case

Maker: TypeAlias = Callable[[str, Case, np.random.Generator], str]
NO_INK = (" ", "  ", "~", "$", "\\,", "\\!", "\\;", "\\ ")
# What math-verify loses.
LOST = (
    "$",
    "\\$",
    '"',
    "'",
    "\\!",
    "\\! ",
    "\\text{}",
    "\\text{ }",
    "\\displaystyle",
    "\\mathrm{th}",
)
STANDING = {
    "math": (
        "\\lim_{h \\to 0} ({})",
        "\\sum_{k=1}^{1} ({})",
        "\\prod_{k=1}^{1} ({})",
        "\\frac{d}{dx} \\int ({}) dx",
    ),
    "antiderivative": (
        "\\int ({}) dx",
        "\\int_0^x ({}) dx",
        "\\frac{d}{dx} \\int \\int ({}) dx dx",
    ),
}
SPELLINGS = (
    ("G[", "□_["), ("G[", "Globally["), ("F[", "◇["), ("F[", "Eventually_["), (" U[", " Until["),
    ("->", "→"), (" and ", " ∧ "),
)  # fmt: skip


def asked_again(name: str, case: Case, rng: np.random.Generator) -> str:
    """An expression of the question, with what leaves no ink put anywhere into it."""
    gold = gold_of(case.answer)
    found = [
        p for p in pieces(str(case.fields.get("prompt", ""))) if squeeze(p) not in squeeze(gold)
    ]
    if not found or parse_number(strip_markup(gold)) is not None:
        return ""
    return boxed(sprinkled(pick(rng, found), NO_INK, rng))


def left_standing(name: str, case: Case, rng: np.random.Generator) -> str:
    """An operation that gives the reference, or for an antiderivative is the problem, its command
    spliced with what is lost.
    """
    gold = gold_of(case.answer)
    if name == "math" and parse_number(strip_markup(gold)) is not None:
        return ""
    head, rest = re.fullmatch(r"(\\[a-z]+)(.*)", pick(rng, STANDING[name]), re.DOTALL).groups()  # pyright: ignore[reportOptionalMemberAccess]
    return boxed(head[:2] + sprinkled(head[2:], LOST, rng) + rest.replace("({})", f"({gold})"))


def off_by_one(name: str, case: Case, rng: np.random.Generator) -> str:
    """The reference with one of its numbers one more, or one less, in one of several spellings."""
    text = str(case.answer)
    at = pick(rng, list(re.finditer(r"(?<![\w.])[0-9]+(?![\w.])", text)))
    text = text[: at.start()] + str(int(at[0]) + pick(rng, (-1, 1))) + text[at.end() :]
    for sign, other in SPELLINGS:
        text = text.replace(sign, other) if rng.random() < 0.2 else text
    return text


def pick(rng: np.random.Generator, among: Sequence[Any]) -> Any:
    return among[int(rng.integers(len(among)))]


def sprinkled(text: str, marks: Sequence[str], rng: np.random.Generator) -> str:
    for _ in range(int(rng.integers(0, 4))):
        i = int(rng.integers(len(text) + 1))
        text = text[:i] + pick(rng, marks) + text[i:]
    return text


def boxed(text: str) -> str:
    return f"\\boxed{{{text}}}"
