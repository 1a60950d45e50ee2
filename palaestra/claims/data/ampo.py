"""The claim of ampo: several teachers, only where all answers fail."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.claims.short import instead
from palaestra.claims.starts import RATES
from palaestra.recipes.data.ampo import build

LONGEST = 96  # tokens of an answer

# ways to write a column; the start has met the first alone
TEACHERS: Mapping[str, Callable[[int, int, int], str]] = {
    "columns": lambda x, y, c: f"{x}+{y}+{c}={x + y + c}",
    "carry first": lambda x, y, c: f"{c}+{x}+{y}={x + y + c}",
    "sum first": lambda x, y, c: f"{x + y + c}={x}+{y}+{c}",
    "two sums": lambda x, y, c: f"{x}+{y}={x + y}+{c}={x + y + c}",
}


def solution(task: pl.Task, column: Callable[[int, int, int], str]) -> str:
    """A sum of two numbers worked out from the right, a line a column as `column` writes it."""
    a, b = pl.tasks.question_text(task).split("+")
    lines, carry = list[str](), 0
    for x, y in zip(map(int, reversed(a)), map(int, reversed(b)), strict=True):
        lines.append(column(x, y, carry))
        carry = (x + y + carry) // 10
    return pl.tasks.format_answer(lines, task.answer)


@pl.stage
class TaughtBySeveral:
    """Runs `link` on the task with the solutions of these teachers, and gives back the task."""

    link: pl.Collect
    teachers: tuple[str, ...] = tuple(TEACHERS)

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        texts: Sequence[str] = [solution(group.task, TEACHERS[t]) for t in self.teachers]
        known = replace(group.task, meta={**group.task.meta, "demonstrations": texts})
        made = await self.link(ctx, key, replace(group, task=known))
        return replace(made, task=group.task)


def guided(teachers: tuple[str, ...] = tuple(TEACHERS), **options: Any) -> pl.Recipe:
    """8 prompts a step."""
    learned = build(length=LONGEST, **options)
    return pl.vary(
        learned,
        collect=TaughtBySeveral(learned.collect, teachers),
        schedule=pl.Schedule(prompts=8, steps=200),
    )


def unguided() -> pl.Recipe:
    """The same losses and rewards, without teachers."""
    score = pl.Score(reward=pl.rewards.AccuracyAndFormat(0.1, accuracy=0.9))
    return pl.vary(
        build(length=LONGEST),
        collect=pl.links(pl.Sample(n=8), score),
        schedule=pl.Schedule(prompts=8, steps=200),
    )


ONE, BEST = ("two sums",), ("columns",)

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "grpo": unguided(),
        "ampo": guided(),
        "random": guided(choice="random"),
        "one teacher": guided(ONE, k=1),
        "one teacher always": guided(ONE, k=1, always_on=True),
        "best teacher": guided(BEST, k=1),
        "mean of each": guided(level="sequences"),
    },
    expect=pl.ledger.Greater(
        "ampo", "grpo", by=0.05, why="between the paper's gains on maths and elsewhere"
    ),
    reasons=(
        pl.ledger.Needs("random", "the choice by comprehension"),
        pl.ledger.Needs("one teacher", "several teachers"),
        pl.ledger.Needs("one teacher always", "teachers only where all answers fail"),
    ),
    vetoes={"pass@8": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@8.mean"), falls=0.03)},
    **instead(
        tuned={"optimiser.lr": RATES[:2]},
        task="add(d=6,max_tokens=96)",
        tokens=24_000,
        tuning_tokens=10_000,
        evaluate=64,
        seconds=75.0,
    ),
    controls={
        "probability of a teacher's token": pl.ledger.Logged("demonstration/probability", last=0),
        "entropy": pl.ledger.Logged("entropy_sampled"),
    },
)
