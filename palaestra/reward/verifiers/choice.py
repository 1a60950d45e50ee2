"""Multiple choice, with the options in any order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from palaestra.reward.answers import boxed, folded, plain
from palaestra.reward.verifiers.answers import statement
from palaestra.reward.verifiers.base import Judgement, binary, failed, guarded, needed, reply
from palaestra.types import Key, UserError, rng_of, stage

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LETTERED = re.compile(
    r"(?:option\s+|choice\s+)?\(?([A-Za-z])\)?(?:\s*[.:)]\s*|\s+-\s+|\s*$)(.*)", re.IGNORECASE | re.DOTALL
)


def shuffled(n: int, key: Key) -> list[int]:
    """An order of n options: at place i stands option order[i]."""
    return [int(i) for i in rng_of((*key, "options")).permutation(n)]


@stage
class MultipleChoice:
    """1 if the letter, or the text, of the right option is the final answer.

    `options` are in their own order and `order[i]` says which of them was shown at place i. The answer is an option's index,
    letter or text in their own order. A letter with another option's text, several letters, or a letter without an option
    is worth 0. `only_boxed` reads \\boxed{} alone, as AlphaMed does (arXiv:2505.17952).
    """

    only_boxed: bool = False

    @guarded
    def __call__(
        self, response: str, answer: Any, *, options: Sequence[Any], order: Sequence[int] | None = None
    ) -> Judgement:
        own = [str(o) for o in needed(options, "options", (list, tuple), self)]
        if not 2 <= len(own) <= len(LETTERS) or len({folded(plain(o)) for o in own}) != len(own):
            raise UserError(f"MultipleChoice: {len(own)} options, some alike perhaps; give 2 to 26 different ones")
        places = list(range(len(own))) if order is None else [int(i) for i in order]
        if sorted(places) != list(range(len(own))):
            raise UserError(f"MultipleChoice: order {places} is no order of {len(own)} options")
        gold, shown = index_of(answer, own), [own[i] for i in places]
        said = boxed(reply(response)) if self.only_boxed else statement(response)
        if said is None and not self.only_boxed and len(reply(response)) < 500:
            said = reply(response).strip()
        place = None if said is None else pick(said, shown)
        return failed("unparsable") if place is None else binary(places[place] == gold)


def index_of(answer: Any, options: Sequence[str]) -> int:
    """Which option a reference names: by index, text or letter."""
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(options):
        return answer
    texts = [folded(plain(o)) for o in options]
    text = folded(plain(str(answer)))
    if text in texts:
        return texts.index(text)
    if len(text) == 1 and text.upper() in LETTERS[: len(options)]:
        return LETTERS.index(text.upper())
    raise UserError(f"MultipleChoice: the answer {str(answer)[:40]!r} is none of the {len(options)} options")


def pick(said: str, shown: Sequence[str]) -> int | None:
    """The place that a statement names; None where it names none, or several."""
    said = plain(said.strip())
    texts = [folded(plain(o)) for o in shown]
    if folded(said) in texts:
        return texts.index(folded(said))
    match = LETTERED.fullmatch(said)
    if not match or match[1].upper() not in LETTERS[: len(shown)]:
        return None
    place, rest = LETTERS.index(match[1].upper()), folded(plain(match[2]))
    return place if not rest or rest == texts[place] else None
