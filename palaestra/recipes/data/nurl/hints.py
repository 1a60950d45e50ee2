"""Hints that a chat model writes: it is shown the answer of a task and says what leads there."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import palaestra as pl

WRITER = "writer"
EXPLAIN = "{question}\n\nThe answer is {answer}. Explain step by step why it is right."
ABSTRACT = (
    "{question}\n\nAn explanation of its answer:\n{explanation}\n\nWrite a hint of one or two sentences: "
    "only the knowledge that is needed to solve it. Say neither the answer nor a step of the working."
)


async def write_hints(
    source: pl.Source,
    tasks: Sequence[pl.Task],
    attempts: int = 4,
    seed: int = 0,
    ctx: pl.Context | None = None,
) -> list[str]:
    """A hint for each task, in the words of a chat model that is shown the answer.

    Args:
        source: the model. A model of a run needs that run's `ctx`.
        tasks: with answers.
        attempts: how often a hint is written until it does not hold the answer.
        seed: of the requests.
        ctx: of a run; None = outside of a run.

    Returns:
        A text per task; "" where each attempt gave the answer away, said nothing, or failed.
    """
    client = source.open(ctx)

    async def ask(text: str, number: int) -> str:
        asked = pl.ChatRequest(
            messages=pl.services.question_messages(text),
            temperature=1.0,
            seed=pl.seed_of((seed, number)),
        )
        return (await client.chat(asked)).text.strip()

    async def hint(task: pl.Task) -> str:
        question = pl.tasks.question_text(task)
        for n in range(attempts):
            try:
                why = await ask(EXPLAIN.format(question=question, answer=task.answer), 2 * n)
                text = await ask(ABSTRACT.format(question=question, explanation=why), 2 * n + 1)
            except pl.Fault:
                continue
            if text and not pl.rollout.leaks_answer(text, task.answer):
                return text
        return ""

    return list(await asyncio.gather(*map(hint, tasks)))


@pl.declare(columns=("hint",))
@pl.stage
class WithHints:
    """Draws as `source` does. A task without the column `hint` gets one that `writer` writes; a
    task that has it, or that has no answer to explain, stays as it is. Equal tasks have equal
    hints. The state counts the tasks that were asked for, and those of them without a hint.
    """

    source: pl.Draw = pl.Shuffled()
    writer: pl.Source = pl.LocalModel(WRITER)
    attempts: int = 4

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        drawn, inner = self.source(ctx, key, n, dict(state.get("inner", {})))
        open_places = [i for i, t in enumerate(drawn) if needs_hint(t)]
        written = await write_hints(
            self.writer, [drawn[i] for i in open_places], self.attempts, ctx.seed, ctx
        )
        hints = dict(zip(open_places, written, strict=True))
        tasks = [
            replace(t, meta={**t.meta, "hint": hints[i]}) if hints.get(i) else t
            for i, t in enumerate(drawn)
        ]
        counts = {"asked": len(written), "without": written.count("")}
        totals = {k: state.get(k, 0) + v for k, v in counts.items()}
        return tasks, {**state, **totals, "inner": inner}


def needs_hint(task: pl.Task) -> bool:
    """Whether a hint has to be written: there is none, and an answer that can be explained."""
    return not task.meta.get("hint") and task.answer is not None
