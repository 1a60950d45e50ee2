"""The embedded problem: the built-in model first imitates what each stage says of an arithmetic chain.

Replies are computed, and in one half of the cases the thoughts that are shown to the last stage end in
a wrong result, so that it learns to believe the proof. Answers in words are imitated
without any working: what z3 does for a statement they would have to do in one step.
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np

import palaestra as pl

# short, for a context of 512 bytes
PROMPTS = pl.worlds.FormalPrompts(
    align="\nexists",
    formalise="\n{problem}\nsmt",
    again="",
    reason="\n{statement}\nprove",
    extract="\n{thoughts}\n{proof}\nanswer",
    proven="proven {witness}",
    unproven="unproven",
)


@pl.stage
class DemonstrateStages:
    """Adds a demonstration of one stage, or of a direct answer, to a group."""

    recorded: ClassVar[bool] = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        task, rng = group.task, pl.rng_of((*key, "stage"))
        instruction, reply = draw_stage(task, rng)
        (first, *rest) = task.prompt
        asked = replace(task, prompt=(replace(first, content=first.content + instruction), *rest))
        made = pl.Demonstrate().episode(ctx, asked, reply, ())
        return replace(group, episodes=(*group.episodes, made))


def draw_stage(task: pl.Task, rng: np.random.Generator) -> tuple[str, str]:
    """What stands behind a chain's question in a stage, and the reply."""
    problem, statement = f"a = {task.prompt[-1].content}", smt_of(task)
    work = "\n".join(pl.toys.ArithmeticChain(modulo=task.meta["modulo"]).steps(task))
    thoughts = f"{work}\n(= answer {task.answer})"
    wrong = rng.random() < 0.5
    stated_answer = (
        (int(task.answer) + int(rng.integers(1, 10))) % 10 if wrong else int(task.answer)
    )
    doubted = f"{work}\n(= answer {stated_answer})"
    proven = PROMPTS.proven.format(witness=task.answer)
    each = [
        ("", f"= {task.answer}"),
        (PROMPTS.align, problem),
        *[(PROMPTS.formalise.format(problem=problem), statement)] * 4,
        (PROMPTS.reason.format(statement=f"(declare-const answer Int)\n{statement}"), thoughts),
        (PROMPTS.extract.format(thoughts=doubted, proof=proven), f"= {task.answer}"),
        (PROMPTS.extract.format(thoughts=doubted, proof=PROMPTS.unproven), f"= {stated_answer}"),
    ]
    return each[int(rng.integers(len(each)))]


def smt_of(task: pl.Task) -> str:
    """The assertion of a chain: 4+7*3 mod 10 is (assert (= answer (mod (* (+ 4 7) 3) 10)))."""
    numbers, ops = task.meta["numbers"], task.meta["ops"]
    text = str(numbers[0])
    for op, b in zip(ops, numbers[1:], strict=True):
        text = f"({op} {text} {b})"
    return f"(assert (= answer (mod {text} {task.meta['modulo']})))"


def imitate_stages(steps: int) -> pl.Recipe:
    """Imitates demonstrations of stages for `steps` steps."""
    return pl.vary(
        pl.recipe("sft"),
        collect=pl.links(DemonstrateStages()),
        optimiser=pl.AdamW(lr=1e-3, warmup=5),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )
