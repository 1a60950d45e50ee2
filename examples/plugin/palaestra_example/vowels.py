"""How many vowels a response has: 1 where they are as many as the reference says."""

from typing import Any, ClassVar

import palaestra as pl


@pl.stage
class Vowels:
    """Whether a response has as many vowels as the reference, a whole number, says."""

    forgiven: int = 0  # vowels too many or too few
    put: ClassVar[str] = ""  # a reference is no response

    @pl.verifiers.guard_verifier
    def __call__(self, response: str, answer: Any) -> pl.verifiers.Judgement:
        wanted = pl.verifiers.require_field(answer, "answer", int, self)
        count = sum(c in "aeiou" for c in pl.verifiers.strip_thinking(response).lower())
        return pl.verifiers.binary_judgement(
            abs(count - wanted) <= self.forgiven, vowels=float(count)
        )
