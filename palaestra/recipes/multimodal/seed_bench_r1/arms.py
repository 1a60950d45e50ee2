"""What the arms train on and how: options in a fresh order, imitation of a rationale or of the letter alone."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.multimodal.seed_bench_r1.reading import LETTERS, ChoiceReward, gold_letter

Imitate = Literal["", "answer"]


@pl.stage
class AskedClips:
    """The problems of a source with at most `choices` options, the right one among them, and `ask` behind
    the question. Which wrong options are left follows from the id of the problem.
    """

    tasks: pl.Tasks
    choices: int = 4
    ask: str = ""

    @property
    def name(self) -> str:
        return self.tasks.name

    @property
    def size(self) -> int | None:
        return self.tasks.size

    @property
    def test_size(self) -> int | None:
        return getattr(self.tasks, "test_size", None)

    def task(self, split: str, index: int) -> pl.Task:
        task = few_options(self.tasks.task(split, index), self.choices)
        *before, asked = task.prompt
        if not self.ask or self.ask in asked.content:
            return task
        instructed = replace(asked, content=f"{asked.content.rstrip()}\n{self.ask}")
        return replace(task, prompt=(*before, instructed), instruction=self.ask)

    def demonstration(self, task: pl.Task, rng: np.random.Generator, habit: Any) -> str:
        """What the source writes."""
        return pl.tasks.demonstration(self.tasks, task, rng, habit)


def few_options(task: pl.Task, choices: int) -> pl.Task:
    """The task with the right option and `choices` - 1 of the others, in their order; as it is where there
    are no more. Its answer is then the option's text.
    """
    known = pl.tasks.option_texts(task.meta)
    letter = gold_letter(task)
    if len(known) <= choices:
        return task
    gold = LETTERS.index(letter)
    wrong = [i for i in range(len(known)) if i != gold]
    drawn = pl.rng_of(("few options", task.id)).choice(len(wrong), choices - 1, replace=False)
    kept = sorted([gold, *(wrong[int(i)] for i in drawn)])
    reordered = pl.tasks.reorder_options(task, options=[known[i] for i in kept])
    return replace(reordered, answer=known[gold])


@pl.stage
class ClipDraw:
    """Draws training problems; `shuffle` shows their options in a fresh order each time, and
    `imitate="answer"` gives them the letter in its tags to imitate.
    """

    shuffle: bool = True
    imitate: Imitate = ""
    draw: pl.Draw = pl.Shuffled()

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        tasks, state = self.draw(ctx, key, n, state)
        return [self._shown(t, (*key, t.id)) for t in tasks], state

    def _shown(self, task: pl.Task, key: pl.Key) -> pl.Task:
        if self.shuffle:
            n = len(pl.tasks.option_texts(task.meta))
            task = pl.tasks.reorder_options(task, pl.verifiers.option_order(n, key))
        if self.imitate == "answer":
            text = f"<answer>{gold_letter(task)}.</answer>"
            task = replace(task, meta={**task.meta, "demonstration": text})
        return task


def by_reward(steps: int, prompts: int, samples: int, kl: float, lr: float) -> pl.Recipe:
    """GRPO as the released trainer has it: advantages by the group's mean and standard deviation, the mean
    over each answer's tokens, then over answers; ratio 1 on the policy's own samples.
    """
    loss = pl.Clipped(reduce="sequences")
    return pl.vary(
        pl.recipe("grpo"),
        draw=ClipDraw(),
        collect=pl.links(pl.Sample(n=samples), pl.Score(reward=ChoiceReward())),
        credit=pl.chain(pl.Center("group"), pl.Scale("group", eps=1e-4)),
        objective=loss + kl * pl.KL("k3") if kl else loss,
        needs=(("ref", "logp"),) if kl else (),
        references={"ref": "policy"} if kl else {},
        heads=("eyes",),
        optimiser=pl.AdamW(lr=lr),
        schedule=pl.Schedule(prompts=prompts, steps=steps),
    )


def by_imitation(steps: int, prompts: int, lr: float) -> pl.Recipe:
    """Demonstrations, with a tenth of the steps to warm up and a cosine to 0 behind."""
    rate: Any = pl.Cosine(lr, 0.0, steps) if steps > 1 else lr
    return pl.vary(
        pl.recipe("sft"),
        draw=ClipDraw(shuffle=False),
        heads=("eyes",),
        optimiser=pl.AdamW(lr=rate, warmup=round(0.1 * steps)),
        schedule=pl.Schedule(prompts=prompts, steps=steps),
    )


def steps_of(ctx: pl.Context, recipe: pl.Recipe) -> int:
    """How many steps an arm takes: what --steps says, else its own."""
    return int(ctx.budget.get("steps") or recipe.schedule.steps)


def with_rates(recipe: pl.Recipe, steps: int) -> pl.Recipe:
    """The arm by imitation with the cosine and the tenth to warm up of `by_imitation` over other steps; as it is
    where it has other rates.
    """
    optimiser: Any = recipe.learners["policy"].optimiser
    rate = getattr(optimiser, "lr", None)
    if not isinstance(rate, pl.Cosine) or optimiser.warmup != round(0.1 * rate.steps):
        return recipe
    fitted = replace(optimiser, lr=replace(rate, steps=steps), warmup=round(0.1 * steps))
    return pl.vary(recipe, optimiser=fitted)


def tell_epochs(ctx: pl.Context, recipe: pl.Recipe, option: str) -> str:
    """What an arm is trained for, with the epochs that this is; of data of a known size it is said at the terminal."""
    steps, prompts, size = steps_of(ctx, recipe), recipe.schedule.prompts, ctx.bench.tasks.size
    line = f"{steps} steps of {prompts} problems"
    if not size:
        return line
    line += f", {steps * prompts / size:.3g} epochs of the {size} in the data"
    one = -(-size // prompts)
    ctx.say(f"{line}; {option}={one} is one epoch" if one != steps else line)
    return line


def arms_of(rl: pl.Recipe, sft: pl.Recipe, strict: bool) -> Mapping[str, pl.Recipe]:
    """The recipe of each arm."""

    def paid(shuffle: bool = True, **more: float) -> pl.Recipe:
        reward = ChoiceReward(strict, **more)
        collect: Any = rl.collect
        sample, _ = collect.links
        return pl.vary(
            rl, draw=ClipDraw(shuffle), collect=pl.links(sample, pl.Score(reward=reward))
        )

    return {
        "grpo": paid(),
        "grpo-fixed": paid(shuffle=False),
        "grpo-format": paid(form=1.0),
        "grpo-consistent": paid(consistent=0.5),
        "sft": sft,
        "sft-answers": pl.vary(sft, draw=ClipDraw(shuffle=False, imitate="answer")),
        "sft-shuffled": pl.vary(sft, draw=ClipDraw(imitate="answer")),
    }


ARMS = (
    "grpo",
    "grpo-fixed",
    "grpo-format",
    "grpo-consistent",
    "sft",
    "sft-answers",
    "sft-shuffled",
)
