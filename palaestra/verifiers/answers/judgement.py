"""Verdicts of a judge, and answers by a model that may say that it does not know (KnowRL, SALU)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from palaestra.errors import UserError
from palaestra.types import stage
from palaestra.verifiers.answers.final import tagged_answer, verdict_mark
from palaestra.verifiers.answers.short import matches_gold, normalise_text, words
from palaestra.verifiers.base import (
    Judgement,
    binary_judgement,
    failed_judgement,
    guard_verifier,
    require_field,
    strip_thinking,
)
from palaestra.verifiers.text.formats import Tags

REFUSAL_PHRASES = ("I don't know", "I do not know", "unknown", "I am not sure", "I'm not sure")


@stage
class Verdict:
    """1 if a judge's verdict, [[A]] behind its thinking, is the reference; 0 for a verdict that is
    missing, or not one.

    J1 (arXiv:2505.10320). Only the exact label counts: KnowRL's released search for a stand-alone
    letter A reads "B because A ..." as A. A constant verdict is right half the time, so pay
    `consistency` as well: right in both orders of the pair.
    """

    labels: tuple[str, ...] = ("A", "B")

    @guard_verifier
    def __call__(self, response: str, answer: Any) -> Judgement:
        gold = str(answer)
        if gold not in self.labels:
            raise UserError(
                f"Verdict: the answer {gold[:40]!r} is none of {', '.join(self.labels)}"
            )
        verdict = read_verdict(response, self.labels)
        return (
            failed_judgement("unparsable") if verdict is None else binary_judgement(verdict == gold)
        )


def read_verdict(response: str, labels: tuple[str, ...]) -> str | None:
    """The one verdict of a reply; None for none, for several, and for what is no label."""
    mark = verdict_mark(strip_thinking(response))
    return mark if mark in labels else None


@stage
class Factuality:
    """KnowRL (arXiv:2506.19807): +2 right, +1 refused, -1 wrong, softened by the share of thoughts
    that are facts; form +-1.

    `facts` are sentences that are true, one of them word for word makes a thought supported; a fact
    said twice counts once. Fewer than ten facts are worth less by exp(1 - 10 / n). As released, a
    missing answer still earns them; here it does not. The score is (reward + 2) / 5. Refusing
    always earns 0.8: it beats answers that are right less than 2/3 of the time.
    """

    gamma: float = 10.0
    least: ClassVar[float] = -2.0

    @guard_verifier
    def __call__(self, response: str, answer: Any, *, facts: Sequence[Any] = ()) -> Judgement:
        golds = [
            str(a)
            for a in (
                answer
                if isinstance(answer, list | tuple)
                else [require_field(answer, "answer", (str, int, float), self)]
            )
        ]
        text = response if "<think>" in response else f"<think>{response}"
        form = Tags()(text, None).score
        stated = tagged_answer(response)
        worth, supported = -1.0, 0.0
        if stated is not None and stated.strip():
            thoughts = text.partition("</think>")[0].removeprefix("<think>")
            supported = support(thoughts, facts, self.gamma)
            refused = any(matches_gold([r], stated) for r in REFUSAL_PHRASES)
            worth = 2.0 if matches_gold(golds, stated) else 1.0 if refused else -1.0 + supported
        paper = (1.0 if form else -1.0) + worth
        parts = {"format": form, "facts": supported, "paper": paper}
        return Judgement(
            score=min(1.0, max(0.0, (paper + 2) / 5)),
            parts=parts,
            status="ok" if stated else "unparsable",
        )


def support(text: str, facts: Any, gamma: float) -> float:
    """The share of a text's different sentences that are facts, less for a few: exp(1 - gamma / n)
    up to gamma.
    """
    known = {normalise_text(str(f)).rstrip(".!? ") for f in facts}
    statements = split_statements(text)
    return fact_worth(sum(s in known for s in statements), len(statements), gamma)


def split_statements(text: str, repeated: bool = False) -> list[str]:
    """The sentences of a text, each once unless `repeated`."""
    statements = [s for x in re.split(r"[.!?\n]+", text) if (s := normalise_text(x))]
    return statements if repeated else list(dict.fromkeys(statements))


def fact_worth(supported: int, n: int, gamma: float = 10.0) -> float:
    """The share of n statements that is supported, times exp(1 - gamma / n) for at most gamma of
    them; 0 for none.
    """
    return supported / n * (1.0 if n > gamma else math.exp(1 - gamma / n)) if n else 0.0


@stage
class Selective:
    """SALU (arXiv:2507.16951): a right answer, or an abstention where there is none, is +1; a
    needless one -0.5; wrong -1 - c.

    The answer None means that the question has none. `confidence`, c in [0, 1], must come from a
    frozen model: a policy can lower its own. An answer with an abstention beside it is wrong, and
    so is silence. The score is (reward + 2) / 3.
    """

    phrase: str = "I don't know."
    least: ClassVar[float] = -2.0

    @guard_verifier
    def __call__(self, response: str, answer: Any, *, confidence: float = 0.0) -> Judgement:
        stated = tagged_answer(strip_thinking(response))
        text = strip_thinking(response) if stated is None else stated
        abstained = words(text) == words(self.phrase)
        golds = [str(a) for a in (answer if isinstance(answer, list | tuple) else [answer])]
        fits = abstained if answer is None else matches_gold(golds, text)
        wrong = -1.0 - min(1.0, max(0.0, confidence))
        paper = 1.0 if fits else -0.5 if abstained else wrong
        return Judgement(
            score=(paper + 2) / 3, parts={"abstained": float(abstained), "paper": paper}
        )
