"""How many vowels a response has: 1 where they are as many as the reference says."""

from typing import Any, ClassVar

from palaestra.types import stage
from palaestra.verifiers.base import Judgement, binary_judgement, guard_verifier, require, strip_thinking


@stage
class Vowels:
    """Whether a response has as many vowels as the reference, a whole number, says."""

    forgiven: int = 0  # vowels too many or too few
    put: ClassVar[str] = ""  # a reference is no response

    @guard_verifier
    def __call__(self, response: str, answer: Any) -> Judgement:
        wanted = require(answer, "answer", int, self)
        count = sum(c in "aeiou" for c in strip_thinking(response).lower())
        return binary_judgement(abs(count - wanted) <= self.forgiven, vowels=float(count))
