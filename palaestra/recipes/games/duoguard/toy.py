"""Harmless texts of two made-up languages for a small model. A text has three words; it is "zorp" if a
word of it names a kind of that made-up fruit. The second language has the words of the first with other
letters, those of fruits with letters of other words, and few labelled texts.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.recipes.games.duoguard.guard import guard_numbers

FRUIT = ("ba", "me", "fi", "go", "zu", "ve")
OTHER = ("da", "ke", "lo", "ni", "pu", "ra", "se", "to", "hi", "ju")
LETTERS = str.maketrans("aeioubmfgzvdklnprsthj", "uiaeodklnprbmfgzvtshj")
LANGUAGES = ("first", "second")
FEW = 4  # labelled texts of the second language


def second(text: str) -> str:
    """A text of the first language in the second."""
    return text.translate(LETTERS)


def is_fruit(text: str, language: str) -> bool:
    kinds = FRUIT if language == "first" else tuple(map(second, FRUIT))
    return any(w in kinds for w in text.split())


def draw_text(rng: Any) -> str:
    words = [str(rng.choice(OTHER)) for _ in range(3)]
    if rng.random() < 0.5:
        words[int(rng.integers(3))] = str(rng.choice(FRUIT))
    return " ".join(words)


def toy_task(split: str, language: str, index: int) -> pl.Task:
    first = draw_text(pl.rng_of(("duoguard", split, language, index)))
    text = first if language == "first" else second(first)
    return pl.Task(
        id=f"{language}/{split}/{index}",
        prompt=(pl.Message(role="user", content=text),),
        meta={"labels": ["zorp"] if is_fruit(text, language) else []},
        domain=language,
    )


@pl.stage
class ToyTexts:
    """Texts to train on: of the second language a `share`, drawn from few."""

    share: float = 0.0

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        rng = pl.rng_of((*key, "texts"))

        def one() -> pl.Task:
            if rng.random() < self.share:
                return toy_task("train", "second", int(rng.integers(FEW)))
            return toy_task("train", "first", int(rng.integers(1 << 20)))

        return [one() for _ in range(n)], state


def rewritten(text: str, rng: Any) -> str:
    """A text of the first language in the second: its words in another order, those that name no fruit
    perhaps others.
    """
    words = [
        str(rng.choice(OTHER)) if w in OTHER and rng.random() < 0.5 else w for w in text.split()
    ]
    return second(" ".join(words[i] for i in rng.permutation(len(words))))


@pl.stage
class ShowRewriting:
    """Demonstrates a text of the first language in the second."""

    template: str

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        text = pl.tasks.plain_question(group.task)
        prompt = (pl.Message(role="user", content=self.template.format(text=text)),)
        rewrite = rewritten(text, pl.rng_of((*key, "rewritten")))
        made = pl.recorded_episode(ctx, "policy", prompt, rewrite, 1.0, judged=False)
        return replace(group, episodes=(made,))


@pl.stage
class RateByRule:
    """5 where a text of the second language has the label, 1 where not, or where it is no text of it."""

    async def __call__(
        self, ctx: pl.Context, text: str, candidate: str, labels: Sequence[str]
    ) -> float:
        words = {second(w) for w in (*FRUIT, *OTHER)}
        candidate_words = candidate.split()
        known = bool(candidate_words) and all(w in words for w in candidate_words)
        return 5.0 if known and is_fruit(candidate, "second") == bool(labels) else 1.0


@pl.stage
class ToyExam:
    """An evaluator: `guard_numbers` of texts of both languages that were not trained on."""

    classes: tuple[str, ...]
    tasks: int = 400

    async def __call__(self, ctx: pl.Context) -> dict[str, float]:
        every = [toy_task("test", x, i) for x in LANGUAGES for i in range(self.tasks // 2)]
        return await guard_numbers(ctx, every, self.classes)
