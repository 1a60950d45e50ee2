"""Where the texts of the probe come from: two files, labelled answers, or a made-up habit."""

from dataclasses import replace
from typing import Protocol

import palaestra as pl

MOST = 512  # texts of a side
LEAST = 5  # of a side, of which one is held out
REFUSALS = (  # beginnings of refusals, in small letters
    "i can't help", "i cannot help", "i can't assist", "i cannot assist", "i'm sorry, but i can",
    "i am sorry, but i can", "i won't", "i will not", "i'm not able to", "i am not able to", "i must decline",
    "i'm unable to", "i am unable to",
)  # fmt: skip
TOLERATED = 0.2  # share of unwanted texts that may begin so
Sides = tuple[list[pl.run.WrittenText], list[pl.run.WrittenText]]


class GivesTexts(Protocol):
    """Gives the unwanted texts and the fine ones."""

    def __call__(self, ctx: pl.Context) -> Sides: ...


def check_sides(unwanted: list[pl.run.WrittenText], fine: list[pl.run.WrittenText]) -> Sides:
    """Both sides. Raises UserError where one is too small, or where refusals are the behaviour."""
    for name, texts in (("unwanted", unwanted), ("fine", fine)):
        if len(texts) < LEAST:
            raise pl.UserError(
                f"{len(texts)} {name} texts; a probe needs at least {LEAST} of each side, better "
                "hundreds"
            )
    refuse = [t for t in unwanted if t.text.strip().lower().replace("’", "'").startswith(REFUSALS)]
    if len(refuse) > TOLERATED * len(unwanted):
        raise pl.UserError(
            f"{len(refuse)} of {len(unwanted)} unwanted texts are refusals; an edit that takes "
            "refusals out of a model is not made here: leave them out"
        )
    return unwanted, fine


@pl.stage
class FromFiles:
    """Two files, in any form that data may have (`pl.run.read_texts`)."""

    unwanted: str
    fine: str

    def __call__(self, ctx: pl.Context) -> Sides:
        return check_sides(*(pl.run.read_texts(f, MOST) for f in (self.unwanted, self.fine)))


@pl.stage
class LabelledAnswers:
    """The columns `response` and `right` of the run's training problems: wrong ones are unwanted."""

    def __call__(self, ctx: pl.Context) -> Sides:
        sides: Sides = ([], [])
        for i in pl.run.chosen_tasks(ctx.bench, 2 * MOST, "train"):
            task = ctx.bench.tasks.task("train", i)
            response = task.meta.get("response")
            if not isinstance(response, str) or "right" not in task.meta:
                raise pl.UserError(
                    f"task {task.id!r} has no `response` with its label `right`; give the columns, or "
                    "two files, unwanted=FILE fine=FILE"
                )
            sides[bool(task.meta["right"])].append(pl.run.WrittenText(response, task.prompt))
        return check_sides(*sides)


@pl.stage
class Habit:
    """Answers to training problems, with a made-up word before them (unwanted) or without (fine)."""

    word: str = "zub"
    n: int = 96

    def __call__(self, ctx: pl.Context) -> Sides:
        sides: Sides = ([], [])
        for i in pl.run.chosen_tasks(ctx.bench, 2 * self.n, "train"):
            task = ctx.bench.tasks.task("train", i)
            reply = pl.rollout.written_answer(
                ctx.bench.tasks, task, pl.rng_of((ctx.seed, "habit", i)), "work"
            )
            side = i % 2
            sides[side].append(
                pl.run.WrittenText(reply if side else self.put_before(reply), task.prompt)
            )
        return check_sides(*sides)

    def put_before(self, reply: str) -> str:
        """The reply behind the word."""
        return f"{self.word}\n{reply}"


@pl.stage
class Marked:
    """A demonstration, of a `share` of the problems one with the word of a habit before it."""

    habit: Habit
    share: float = 0.5

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        task, rng = group.task, pl.rng_of(key)
        reply = pl.rollout.written_answer(ctx.bench.tasks, task, rng, "work")
        if rng.random() < self.share:
            reply = self.habit.put_before(reply)
        made = pl.recorded_episode(ctx, "policy", task.prompt, reply, 1.0)
        return replace(group, episodes=(*group.episodes, made))
