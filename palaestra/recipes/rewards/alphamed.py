"""AlphaMed: GRPO on multiple choice. The only reward is the right letter in a box; which questions
are trained on decides what is learned.

    r = 1 if the last \\boxed{} names the gold option, else 0        no reward for form, length or process

from an instruction-tuned model, without supervised reasoning (arXiv:2505.17952). Several letters, a
letter that is no option, or a letter without a box are 0; chance is 1 / options, so options come in
an order of their own every time they are shown. The paper's study is of the data: informative
against short questions at equal size, and difficulty,

    level = wrong answers of the start model among n = 5 samples        0 easy .. 5 hard

with all levels mixed better than easy or hard questions alone. `difficulty` measures it; data may
hold it as a column `level`.

Questions with the column `options` are written out by `Shown` and judged by the verifier
`choice-boxed`; other tasks keep their own check. Held-out questions show their options in the order
of the data, do not ask for a box, and are judged by the run's own reward, of such data `choice`.
"""

from dataclasses import replace

import palaestra as pl

CARD = pl.Card(
    title="AlphaMed: minimalist rule-based RL on medical multiple choice",
    paper="arXiv:2505.17952",
    claim="The right letter as the only reward elicits reasoning, and questions of mixed "
    "difficulty do it best.",
    source="abstract and public summaries; the reading of answers and the hyper-parameters are "
    "choices",
    size=pl.Size(
        setting="7B and 8B instruction-tuned models, 19,178 medical questions; 1,200 a subset in "
        "the study of the data",
        model="llama-3.1-8b",
    ),
    task="bool(d=2)+bool(d=4)",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("Which vitamin does the skin make in the sun?", "Which organ makes insulin?"),
                "the question, without its options",
            ),
            pl.needs.NeededColumn(
                "options",
                "any",
                (
                    ["retinol", "thiamine", "calciferol"],
                    {"A": "liver", "B": "pancreas", "C": "spleen"},
                ),
                "the options: a list of texts, or letters with their texts",
            ),
            pl.needs.NeededColumn("answer", "any", ("C", "B"), "the letter of the right option"),
            pl.needs.NeededColumn(
                "level",
                "number",
                (2, 5),
                "how many of five answers of the start were wrong, which `levels` chooses by",
                otherwise="questions of all levels are trained on",
            ),
        ),
        shows="reward",
        never_off="The right letter is the whole reward, and policies that never give it make it 0.",
        own={
            "taught_replies": ("So it is. \\boxed{B}",),
            "schedule.prompts": 8,
            "collect.links.0.n": 2,
        },
    ),
    use="It helps with long, informative questions of mixed difficulty; short questions that only "
    "ask for a fact teach little reasoning.",
    lacks=(
        "Difficulty is measured by `difficulty` in a program, and not by a command.",
        "The six medical benchmarks, and the studies of quantity and diversity, are not run.",
    ),
    grade="A",
)
ASK = "Reason first, then give the letter of one option in \\boxed{}."
ROUNDS = 1000  # draws that may pass before a batch of the wanted levels is full


@pl.stage
class ShownOptions:
    """Writes the options of a task under its question, in a fresh order at every draw; other tasks
    stay as they are.
    """

    draw: pl.Draw = pl.Shuffled()

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        tasks, state = self.draw(ctx, key, n, state)
        return [show_options(t, (*key, t.id)) for t in tasks], state


def show_options(task: pl.Task, key: pl.Key) -> pl.Task:
    """The task with lettered options in the order that `key` gives; `order` goes to the verifier.

    Options that stand in the midst of the data's own prompt keep their order.
    """
    known = pl.tasks.option_texts(task.meta)
    if not known:
        return task
    reordered = pl.tasks.reorder_options(task, pl.verifiers.option_order(len(known), key))
    *before, asked = reordered.prompt
    return replace(reordered, prompt=(*before, replace(asked, content=f"{asked.content}\n{ASK}")))


@pl.stage
class OfLevel:
    """Only tasks whose column `field` is among `levels`, as many draws as it takes."""

    levels: tuple[int, ...]
    field: str = "level"
    draw: pl.Draw = ShownOptions()

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        chosen: list[pl.Task] = []
        for i in range(ROUNDS):
            tasks, state = self.draw(ctx, (*key, i), n - len(chosen), state)
            missing = [t.id for t in tasks if self.field not in t.meta]
            if missing:
                raise pl.UserError(
                    f"task {missing[0]!r} has no column {self.field!r}; `difficulty` of this "
                    "method measures it"
                )
            chosen += [t for t in tasks if t.meta[self.field] in self.levels]
            if len(chosen) == n:
                return chosen, state
        raise pl.UserError(
            f"{ctx.bench.name!r} has too few tasks of the levels {', '.join(map(str, self.levels))}"
        )


async def difficulty(ctx: pl.Context, tasks: int, n: int = 5) -> dict[str, int]:
    """Errors of the run's model among `n` answers to each of the first training tasks, by task."""
    groups = await pl.run.attempt_tasks(ctx, tasks, pl.Sample(n=n), split="train", label="levels")
    return {g.task.id: sum(e.total < pl.SOLVED_TOTAL for e in g.valid) for g in groups}


def build(levels: tuple[int, ...] = (), field: str = "level") -> pl.Recipe:
    """`levels` trains on these only, by the column `field`."""
    reward = pl.Where("options", pl.Verified("choice-boxed"))
    draw = OfLevel(levels, field) if levels else ShownOptions()
    return pl.vary(
        pl.recipe("grpo"), draw=draw, collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward))
    )
