"""Answers of models that stand still to the same problems, kept as they are made: a study that was
stopped goes on behind the last part that it kept.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from palaestra.context import Context
from palaestra.errors import Fault, UserError
from palaestra.rewards.verify import response_text
from palaestra.rollout.collect import Sample, Score
from palaestra.run.evaluation import chosen_tasks
from palaestra.stats import pass_at_k
from palaestra.store.checkpoint import write_atomic
from palaestra.terminal.progress import Headway
from palaestra.types import Episode, Group, Task

PART = 16  # problems that are kept together

# an answered problem, as JSON holds it
Item: TypeAlias = Mapping[str, Any]


async def answers(
    ctx: Context,
    model: str,
    problems: int,
    samples: int,
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    max_tokens: int = 0,
    draw: str = "answers",
    split: str = "test",
    judged: bool = True,
) -> list[Item]:
    """What a model answers to the first problems of a split.

    Args:
        ctx: of the program.
        model: by its name in the run, "policy" for the one under study.
        problems: how many, or all where there are fewer.
        samples: answers to each.
        temperature: 0 = greedy.
        top_p: share of the likeliest tokens that are drawn from.
        max_tokens: of an answer; 0 = as the problem says.
        draw: names the random numbers. Two models with one draw have the same ones, so that models
            with equal weights give equal answers; a second draw of one model is independent.
        split: "test" or "train".
        judged: whether the problem's reward says what is right; else nobody is asked.

    Returns:
        For each problem {"problem": its number, "id", "domain", "prompt", "gold", "texts" of the
        samples, "right" (true, false, or null where nobody knows), "rewards", "tokens", "cut":
        which reached no end, "errors": samples that failed and are left out}. The lists are empty where all failed.

    Raises:
        Fault: not one sample of all problems could be made.
    """
    sample = Sample(
        n=samples, temperature=temperature, top_p=top_p, model=model, max_tokens=max_tokens
    )
    numbers = list(chosen_tasks(ctx.bench, problems, split))
    items: list[Item] = []
    with Headway(f"{model}: {draw}", ctx.say) as headway:
        headway.expect(len(numbers))
        for first in range(0, len(numbers), PART):
            part = numbers[first : first + PART]

            async def make(part: Sequence[int] = part) -> list[Item]:
                return list(
                    await asyncio.gather(
                        *(_item(ctx, sample, split, i, draw, judged) for i in part)
                    )
                )

            items += await ctx.once(f"{draw}-{model}-{split}-{first}", make)
            headway.advance(len(part))
    if items and not any(x["texts"] for x in items):
        raise Fault("study", f"no answer of {model} could be made: {items[0]['failed']}")
    return items


async def _item(
    ctx: Context, sample: Sample, split: str, number: int, draw: str, judged: bool
) -> Item:
    task = ctx.bench.tasks.task(split, number)
    key = (ctx.seed, draw, number)
    group = await sample(ctx, key, Group(task=task))
    if judged and (ctx.bench.reward is not None or any(e.reward is None for e in group.valid)):
        group = await Score()(ctx, key, group)
    return _spell(task, group, number, judged)


def _spell(task: Task, group: Group, number: int, judged: bool) -> Item:
    """The group as plain data."""
    whole = [e for e in group.valid if e.reward is not None or not judged]
    kept = {id(e) for e in whole}
    failed = [e.status for e in group.episodes if id(e) not in kept]
    return {
        "problem": number,
        "id": task.id,
        "domain": task.domain,
        "prompt": "\n".join(m.shown for m in task.prompt),
        "gold": task.answer
        if isinstance(task.answer, str | int | float | type(None))
        else str(task.answer),
        "texts": [_text(e) for e in whole],
        "right": [e.reward.solved if e.reward else None for e in whole],
        "rewards": [e.reward.total if e.reward else None for e in whole],
        "tokens": [e.n_sampled for e in whole],
        "cut": [e.status.startswith("truncated") for e in whole],
        "errors": len(failed),
        "failed": failed[0] if failed else "",
    }


def _text(episode: Episode) -> str:
    return response_text(episode) or episode.text


def right_shares(items: Sequence[Item]) -> list[float]:
    """The share of right answers of each problem. Raises UserError where answers are not right or
    wrong, and for a problem without an answer.
    """
    for item in items:
        if not item["right"] or None in item["right"]:
            why = "all its samples failed" if not item["right"] else "nobody says which is right"
            raise UserError(
                f"problem {item['id']!r}: {why}; this study needs answers that are right or wrong: rows "
                "with an answer, or a --reward that says so"
            )
    return [sum(item["right"]) / len(item["right"]) for item in items]


def quality(items: Sequence[Item]) -> list[float]:
    """How good the answers to each problem are: the share that is right, or where nobody says so the
    mean reward; problems whose samples all failed are NaN.
    """
    known = all(r is not None for x in items for r in x["right"])
    return [
        float(np.mean(x["right" if known else "rewards"])) if x["texts"] else np.nan for x in items
    ]


def passed(items: Sequence[Item], k: int) -> list[float]:
    """pass@k of each problem, unbiased; its samples are at least k."""
    right_shares(items)
    return [pass_at_k(len(x["right"]), sum(x["right"]), min(k, len(x["right"]))) for x in items]


def possible_answers(items: Sequence[Item], answers: int = 0) -> int:
    """How many answers somebody guesses among who reads no problem: the number that is given, else that of
    different right answers of these problems; 0 = nobody says what is right.
    """
    return answers or len({str(x["gold"]) for x in items if x["gold"] is not None})


def guessed(answers: int, k: int = 1) -> float:
    """The share of problems that k guesses solve, each drawn from `answers` with replacement:
    1 - (1 - 1 / answers)^k. NaN where their number is not known.
    """
    return 1 - (1 - 1 / answers) ** k if answers else math.nan


def keep_rows(path: Path, items: Sequence[Item]) -> None:
    """Writes problems as rows for --data."""
    rows = ({"id": x["id"], "prompt": x["prompt"], "answer": x["gold"]} for x in items)
    write_atomic(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
