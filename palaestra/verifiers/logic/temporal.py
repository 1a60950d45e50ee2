"""Rewards for formulas of signal temporal logic: by meaning, and by likeness of the
text (RESTL).
"""

from __future__ import annotations

from typing import Any

from palaestra.errors import UserError
from palaestra.types import stage
from palaestra.verifiers.answers.short import stated_answer
from palaestra.verifiers.base import (
    Judgement,
    failed_judgement,
    guard_verifier,
    require_field,
    strip_thinking,
)
from palaestra.verifiers.logic.equivalence import are_equivalent
from palaestra.verifiers.logic.stl import STL_ATOM, TOKEN, NotFormula, parse_formula
from palaestra.verifiers.text.similarity import cosine, relative_length, rouge_l


def formula_aspects(text: str, gold: str) -> dict[str, float]:
    """RESTL's four metrics of a formula's surface (arXiv:2511.08555): atoms (recall, as it is
    printed there), template, length, ROUGE-L of the tokens; and `paper`, their sum with its
    weights.
    """
    pairs = [{" ".join(m) for m in STL_ATOM.findall(t)} for t in (text, gold)]
    recall = len(pairs[0] & pairs[1]) / len(pairs[1]) if pairs[1] else float(not pairs[0])
    lists = [TOKEN.findall(t) for t in (text, gold)]
    aspects = {
        "atoms": recall,
        "template": cosine(verbalise(text), verbalise(gold)),
        "length": max(0.0, relative_length(text, gold)),
        "tokens": rouge_l(*lists),
    }
    weights = {"atoms": 0.2, "template": 0.25, "length": 0.35, "tokens": 0.2}
    return {**aspects, "paper": sum(w * aspects[k] for k, w in weights.items())}


def verbalise(text: str) -> str:
    """A formula in words."""
    words = {
        "G": "always",
        "F": "eventually",
        "U": "until",
        "->": "implies",
        ">": "over",
        "<": "under",
    }
    return " ".join(words.get(str(t), str(t)) for t in TOKEN.findall(text))


@stage
class Temporal:
    """1 if the formula means the same as the reference: it is proved that there is no trace on
    which only one of them holds.

    What is neither proved nor refuted in about two seconds is 0; so is all but its own text for a
    reference that holds always, or never. With `surface`, a formula that means something else is
    worth 0.9 of RESTL's four metrics (parts `atoms`, `template`, `length`, `tokens`; `paper` is
    their weighted sum, which by itself pays a wrong time bound 0.97).
    """

    surface: bool = False

    @guard_verifier
    def __call__(self, response: str, answer: Any) -> Judgement:
        gold = str(require_field(answer, "answer", str, self)).strip()
        try:
            wanted = parse_formula(gold)
        except NotFormula as error:
            raise UserError(
                f"Temporal: the answer {gold[:60]!r} is no formula (at {error}); write it as "
                "palaestra.verifiers.logic.stl shows"
            ) from None
        stated = stated_answer(response)
        text = (strip_thinking(response) if stated is None else stated).strip().strip("`$").strip()
        if len(text) > 10 * len(gold) + 200:
            return failed_judgement("unparsable")
        parts = formula_aspects(text, gold)
        near = 0.9 * parts["paper"] * self.surface
        try:
            same = are_equivalent(parse_formula(text), wanted)
        except NotFormula:
            return Judgement(score=near, parts={**parts, "same": 0.0}, status="unparsable")
        return Judgement(score=1.0 if same else near, parts={**parts, "same": float(same)})
