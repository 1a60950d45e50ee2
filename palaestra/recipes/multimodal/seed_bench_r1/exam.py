"""The measurement of one model: answers to the same held-out problems with their media, without, and with
those of another problem; whether thoughts agree with answers; attention to pictures.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.multimodal.seed_bench_r1.reading import ChoiceReward, read_answer

ANSWERS = "answers.jsonl"
CONDITIONS = ("kept", "removed", "swapped")
MASS = "picture_mass"
JUDGE = """A question has these options:
{question}

Somebody reasoned about it:
---
{thought}
---
Which option does this reasoning support? Reply with its letter alone, or with NONE if it supports none or several."""


@pl.stage
class LevelExam:
    """A program: greedy answers of its model, kept in its folder as lines.

    Args:
        tasks: held-out problems.
        strict: which rule says what is right.
        controls: whether they are also asked without their pictures, and with those of another problem.
        attended: of how many problems attention is measured. All maps of a prompt are in memory at once.
        judge: which says what a thought supports, without seeing the answer; None = what it names last.
    """

    tasks: int
    strict: bool = False
    controls: bool = True
    attended: int = 0
    judge: pl.Source | None = None

    async def run(self, ctx: pl.Context) -> pl.Result:
        source = ctx.bench.tasks
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        seen = any(pl.tasks.media_of(source.task("test", i)) for i in numbers)
        if seen:  # a text model gets untrained ones, as the arms do
            ctx.model("policy").add_eyes()
        groups: dict[str, list[pl.Group]] = {}
        for name in CONDITIONS if self.controls and seen else CONDITIONS[:1]:
            tasks = pl.tasks.MediaControl(media=name).tasks(source)
            there = ctx.with_bench(
                replace(ctx.bench, tasks=tasks, reward=ChoiceReward(self.strict))
            )
            sample = pl.Sample(n=1, temperature=0.0)
            groups[name] = await pl.run.attempt_tasks(
                there, self.tasks, sample, label=f"media {name}"
            )
        kept = groups.pop("kept")
        items = [self._item(group, level_of(group.task)) for group in kept]
        for name, some in groups.items():
            items = [{**x, name: right_of(g)} for x, g in zip(items, some, strict=True)]
        if self.judge is not None:
            items = list(await asyncio.gather(*(self._judged(ctx, x) for x in items)))
        if self.attended and seen:
            masses = attention(ctx, kept[: self.attended])
            items = [{**x, **m} for x, m in zip(items, [*masses, *[{}] * len(items)], strict=False)]
        file = pl.tasks.write_records(ctx.folder / ANSWERS, items)
        metrics = {"problems": len(items), "sampled_tokens": ctx.sampled_tokens}
        return pl.Result(metrics=metrics, artifacts={"answers": file})

    def _item(self, group: pl.Group, level: str) -> dict[str, Any]:
        text = pl.response_text(group.episodes[0]) if group.valid else ""
        read = read_answer(text, group.task)
        return {
            "id": group.task.id,
            "level": level,
            "question": "\n".join(m.shown for m in group.task.prompt),
            "gold": str(group.task.answer),
            "text": text,
            "right": right_of(group),
            "lenient": bool(read["first"] and not read["strict"]),
            "supports": read["supports"],
            "chosen": read["chosen"],
            "thought": read["thought"],
            "consistent": read["consistent"],
        }

    async def _judged(self, ctx: pl.Context, item: Mapping[str, Any]) -> dict[str, Any]:
        """What a judge says that the thought supports; an empty thought supports nothing."""
        supports = ""
        if self.judge is not None and item["thought"]:
            text = JUDGE.format(
                question=pl.judges.defuse(item["question"]),
                thought=pl.judges.defuse(item["thought"]),
            )
            messages = pl.services.question_messages(text)
            reply = await ctx.ask(self.judge, pl.ChatRequest(messages=messages, max_tokens=1024))
            word = pl.verifiers.strip_thinking(reply).strip().strip("().*")
            supports = word if len(word) == 1 and word.isupper() else ""
        chosen = item["chosen"]
        agrees = supports == chosen if supports and chosen else None
        return {**item, "supports": supports, "consistent": agrees}


def right_of(group: pl.Group) -> bool:
    """Whether the answer is right; one that could not be made is wrong."""
    return any(e.reward is not None and bool(e.reward.solved) for e in group.valid)


def level_of(task: pl.Task) -> str:
    """The column `level` as text; "" without one."""
    level = task.meta.get("level")
    return "" if level is None else str(level)


def attention(ctx: pl.Context, groups: Sequence[pl.Group]) -> list[dict[str, float]]:
    """Of each problem the attention that the tokens of the answer pay to places of pictures, and the share
    that they would pay if they attended to everything alike.
    """
    signals = ctx.measure(groups, (("policy", MASS),))
    masses: list[dict[str, float]] = []
    for group, rows in zip(groups, signals, strict=True):
        mass_T = np.concatenate([r[f"policy_{MASS}"] for e in rows for r in e] or [np.zeros(0)])
        mass_T = mass_T[mass_T > 0]
        row = group.episodes[0].rows[0] if group.valid else None
        ids = np.array(row.context() if row else [])
        if row is None or not len(mass_T):
            masses.append({})
            continue
        end = len(ids) - len(row.segments[-1].ids)
        share_T = (ids >= pl.models.FIRST_PLACE).sum() / np.arange(end + 1, len(ids) + 1)
        masses.append({"mass": float(mass_T.mean()), "uniform": float(share_T.mean())})
    return masses


async def exam_of(
    ctx: pl.Context, name: str, model: str | None, exam: LevelExam
) -> list[dict[str, Any]]:
    """The answers of a model, None = the one under study."""
    result = await ctx.once(name, exam, model)
    lines = Path(result.artifacts["answers"]).read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]
