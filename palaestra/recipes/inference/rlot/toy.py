"""The embedded problem: the built-in model first imitates what each block says of an arithmetic chain.

A demonstration shows a chain with some lines of its working, the last one of which is wrong in one
half of the cases, and one request; the reply and the grades are computed. So grades are honest here:
what a navigator gains on it shows the mechanism, not how well models grade themselves.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

import palaestra as pl

# short, for a context of 512 bytes
PROMPTS = pl.worlds.BlockPrompts(
    so_far="\n",
    reason="\nreason",
    decompose="\nsub-tasks",
    merge="\n{ideas}\nmerge",
    debate="\nplan",
    compare="\n{ideas}\ncompare",
    refine="\nrefine",
    terminate="\nanswer",
    grade="\ngrade",
)
PLAN = "left to right"


@pl.stage
class DemonstrateBlocks:
    """Adds a demonstration of one block, or of the grades, to a group."""

    recorded: ClassVar[bool] = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        task, rng = group.task, pl.rng_of((*key, "block"))
        instruction, reply = draw_block(task, rng)
        (first, *rest) = task.prompt
        asked = replace(task, prompt=(replace(first, content=first.content + instruction), *rest))
        made = pl.Demonstrate().episode(ctx, asked, reply, ())
        return replace(group, episodes=(*group.episodes, made))


def draw_block(task: pl.Task, rng: np.random.Generator) -> tuple[str, str]:
    """What stands behind a chain's question, and the reply. The question alone is answered at once.

    Lines go on from the result that is shown, a wrong one too; only `refine` mends it.
    """
    ops, modulo, numbers = task.meta["ops"], task.meta["modulo"], task.meta["numbers"]
    lines, n = pl.toys.ArithmeticChain(modulo=modulo).steps(task), len(ops)
    k = int(rng.integers(n + 1))
    steps, wrong = lines[:k], bool(k) and rng.random() < 0.5
    value = int(lines[k - 1].partition("=")[2]) if k else int(numbers[0])
    if wrong:
        value = (value + int(rng.integers(1, modulo))) % modulo
        steps[-1] = steps[-1].partition("=")[0] + f"={value}"
    rest = chain_lines(value, ops[k:], numbers[k + 1 :], modulo)
    times_stated = int(rng.integers(3)) if k == n else 0  # times that the answer is stated already
    steps = [*steps, *[f"= {value}"] * times_stated]
    after = (rest or [f"= {value}"])[0]
    tasks = " ".join(f"{op}{b}" for op, b in zip(ops[k:], numbers[k + 1 :], strict=True)) or "none"
    says = {
        PROMPTS.reason: after,
        PROMPTS.decompose: tasks,
        PROMPTS.merge.format(ideas=tasks): "\n".join(rest[:2]) or after,
        PROMPTS.terminate: f"= {task.answer if rest else value}",
        PROMPTS.grade: grades_of(k, n, wrong),
    }
    if k:
        says |= {
            PROMPTS.debate: PLAN,
            PROMPTS.compare.format(ideas=f"{PLAN}\n{PLAN}"): after,
            PROMPTS.refine: f"= {task.answer}" if times_stated else lines[k - 1],
        }
    else:
        says[""] = f"= {task.answer}"
    block = list(says)[int(rng.integers(len(says)))]
    above = PROMPTS.so_far + "\n".join(steps) if steps else ""
    return above + block, says[block]


def chain_lines(total: int, ops: Sequence[str], numbers: Sequence[int], modulo: int) -> list[str]:
    """The working from a result on, a line `a op b=c` an operator."""
    lines = list[str]()
    for op, b in zip(ops, numbers, strict=True):
        value = {"+": total + b, "-": total - b, "*": total * b}[op] % modulo
        lines.append(f"{total}{op}{b}={value}")
        total = value
    return lines


def grades_of(k: int, n: int, wrong: bool) -> str:
    """Seven grades of k of n lines, the last one of which may be wrong."""
    left = n - k
    complexity = 1 if not left else 2 if left < 3 else 3
    complete = 1 if not k else 3 if not left else 2
    right = 1 if wrong else 3
    return f"33{right}{complexity}2{complete}{right}"


def imitate_blocks(steps: int) -> pl.Recipe:
    """Imitates demonstrations of blocks for `steps` steps."""
    return pl.vary(
        pl.recipe("sft"),
        collect=pl.links(DemonstrateBlocks()),
        optimiser=pl.AdamW(lr=1e-3, warmup=5),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )
