"""REFINE-AF: instructions that a model made up, instances rewarded by automatic feedback, and a fresh
model fine-tuned on them.

Three stages (arXiv:2505.06548):

    1. instructions: those of the task as seeds, or further ones by `draw.client`, asked with 8 examples;
       kept where the ROUGE-L to every earlier one is below 0.7
    2. PPO on the instances that the policy writes, with KL to the start
           R = 0.0078 Rew - 0.4421 Und + 0.3212 Nat + 0.1520 Coh - 0.0274
       Rew of a reward model; Und, Nat and Coh how understandable, natural and coherent it is
    3. the trained model writes an instance for each instruction, and the run's own start, fresh, imitates
       them: no gold answer is shown to it

The coefficients are those of the rule of Instruction Mining, a regression of another data set's
loss; Und has a negative one. All are arguments, `positive` turns that sign round. A reward is of the
whole instance: of a question, its answer, with an empty input.

What judges is a user's: `rew`, `und`, `nat` and `coh` are rewards such as `pl.Judge` or `pl.Learned`.
By default they are programs in their place: Rew what the bench pays (0 without answers), Und
whether the text can be printed and does not repeat itself, Nat whether it states an answer, Coh the
share of the group's answers that are the same. None reads a text as a person does.

What is written in the third stage stands in the rollouts of the part "sft". An instance that states no
answer, or was cut, is not imitated. `feedback="random"` pays a coin, a control; `rl=False` leaves out
the second stage, which is Self-Instruct with the same filters. Coefficients and threshold are from
memory; the KL's weight and the input-first order of classification are not known, and the latter is not
built. A safety filter is the user's to add before anything is released.
What SmolLM2 makes of it stands in docs/runs.md.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

import palaestra as pl

CARD = pl.Card(
    title="REFINE-AF: self-generated instructions with RL from automated feedback",
    paper="arXiv:2505.06548",
    claim="RL from automatic feedback makes the instances that a model writes for its own instructions "
    "a better set to fine-tune on.",
    source="abstract and public reviews (stages, 45K, kinds of feedback); coefficients, threshold and "
    "number of examples from memory",
    size=pl.Size(
        setting="LLaMA-2-7B and 13B, Mistral-7B with LoRA; 175 seed tasks, 45K instructions; 63 to 66% of "
        "the tasks of Super-NaturalInstructions improved over Self-Instruct",
        model="llama-2-7b",
    ),
)
WEIGHTS = (0.0078, -0.4421, 0.3212, 0.1520, -0.0274)  # of Rew, Und, Nat, Coh, and the constant
NOVEL = 0.7
POOL = 1024  # instructions that a further one is compared with


def feedback_score(
    rew: float, und: float, nat: float, coh: float, weights: Sequence[float] = WEIGHTS
) -> float:
    """R of one instance."""
    return float(np.dot(weights[:4], (rew, und, nat, coh)) + weights[4])


def is_novel(similarities: Sequence[float], most: float = NOVEL) -> bool:
    """Whether an instruction is unlike all others: each ROUGE-L below `most`."""
    return all(x < most for x in similarities)


class InstructionText(BaseModel):
    """What a model is asked for."""

    instruction: str


async def make_up(ctx: pl.Context, client: pl.Source, shown: Sequence[str], seed: int) -> str:
    """A further instruction by a language model that is shown others; "" = none in the form asked for."""
    listed = "\n".join(f"- {text}" for text in shown)
    request = pl.ChatRequest(
        messages=pl.services.question_messages(
            f"Write one more instruction, unlike these:\n{listed}"
        ),
        temperature=1.0,
        seed=seed % (1 << 31),
    )
    nothing = InstructionText(instruction="")
    made = await ctx.ask_for(client, request, InstructionText, fallback=nothing)
    return made.instruction.strip()


@pl.stage
class NovelInstructions:
    """Draws instructions that are unlike the earlier ones; those of the task in their order, or with
    `client` such as a language model makes up from `shown` of them.

    Where `tries` in a row are too much alike the last one is taken, so that a small set of seeds may
    start over. What the client writes in another form than asked for is a try that failed; a Fault
    ends the run where all of them are.
    """

    client: pl.Source | None = None
    most: float = NOVEL
    shown: int = 8
    tries: int = 16
    source: pl.Draw = pl.Shuffled()

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        seen = [list(x) for x in state.get("seen", ())]
        inner, dropped = dict(state.get("inner", {})), int(state.get("dropped", 0))
        found: list[pl.Task] = []
        while len(found) < n:
            last: pl.Task | None = None
            words = list[str]()
            for at in range(self.tries):
                drawn, inner = self.source(ctx, (*key, len(found), at), 1, inner)
                task = await self._made_up(ctx, (*key, len(found), at), drawn[0])
                if task is not None:
                    last, words = task, pl.curriculum.prompt_text(task).split()
                    if is_novel([pl.verifiers.rouge_l(words, other) for other in seen], self.most):
                        break
                dropped += 1
            if last is None:
                raise pl.Fault(
                    "starved",
                    f"none of {self.tries} instructions that the client made up has the form asked for; "
                    "use a larger model",
                )
            found.append(last)
            seen = [*seen, words][-POOL:]
        return found, {**state, "inner": inner, "seen": seen, "dropped": dropped}

    async def _made_up(self, ctx: pl.Context, key: pl.Key, task: pl.Task) -> pl.Task | None:
        """The task itself, or what the client makes up; None = in another form than asked for."""
        if self.client is None:
            return task
        rng, tasks = pl.rng_of(key), ctx.bench.tasks
        size = tasks.size or 1 << 20
        shown = [tasks.task("train", int(rng.integers(size))) for _ in range(self.shown)]
        said = await make_up(
            ctx, self.client, list(map(pl.curriculum.prompt_text, shown)), pl.seed_of(key)
        )
        if not said:
            return None
        prompt = (pl.Message(role="user", content=said),)
        return pl.Task(id=f"made-up/{pl.seed_of(key)}", prompt=prompt, domain=task.domain)


def stated(text: str) -> str | None:
    """What an instance states as its answer; None = nothing."""
    found = pl.tasks.final_answer(text)
    return pl.stated_answer(text) if found is None else found


def is_readable(text: str) -> bool:
    """Whether a text can be printed and no line of it stands there more than twice."""
    lines = [line for line in text.splitlines() if line.strip()]
    printable = all(c.isprintable() or c in "\n\t" for c in text)
    return bool(lines) and printable and max(Counter(lines).values()) <= 2


@pl.stage
class AutomaticFeedback:
    """R of every instance of a group, with its four qualities as parts. `feedback="random"` pays a
    coin instead.
    """

    rew: pl.RewardFn | None = None
    und: pl.RewardFn | None = None
    nat: pl.RewardFn | None = None
    coh: pl.RewardFn | None = None
    weights: tuple[float, ...] = WEIGHTS
    feedback: Literal["rule", "random"] = "rule"

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward | pl.Fault]:
        texts = [pl.response_text(e) for e in group.episodes]
        if self.feedback == "random":
            rng = pl.rng_of((ctx.seed, "coin", group.task.id, *texts))
            return [pl.Reward(total=float(x)) for x in rng.integers(0, 2, len(texts))]
        judges = {
            "rew": self.rew or (ctx.bench.reward if group.task.answer is not None else None),
            "und": self.und,
            "nat": self.nat,
            "coh": self.coh,
        }
        own = self.qualities(texts)
        for name, judge in judges.items():
            if judge is not None:
                own[name] = await pl.judge_group(ctx, judge, group)
        return [self._join({k: v[i] for k, v in own.items()}) for i in range(len(texts))]

    def qualities(self, texts: Sequence[str]) -> dict[str, Sequence[Any]]:
        """By programs, of each text."""
        answers = [stated(t) for t in texts]
        alike = Counter(a for a in answers if a is not None)
        n = len(texts)
        return {
            "rew": [0.0] * n,
            "und": [float(is_readable(t)) for t in texts],
            "nat": [float(a is not None) for a in answers],
            "coh": [alike[a] / n if a is not None else 0.0 for a in answers],
        }

    def _join(self, found: dict[str, Any]) -> pl.Reward | pl.Fault:
        if faults := [x for x in found.values() if isinstance(x, pl.Fault)]:
            return faults[0]
        parts = {k: x.total if isinstance(x, pl.Reward) else float(x) for k, x in found.items()}
        return pl.Reward(total=feedback_score(**parts, weights=self.weights), parts=parts)


@pl.stage
class KeepInstances:
    """What states an answer and was not cut stays; the others are muted, so that nobody imitates
    them.
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        kept = [
            e if e.ok and e.status == "finished" and stated(pl.response_text(e)) is not None
            else replace(e, muted=True)
            for e in group.episodes
        ]  # fmt: skip
        return replace(group, episodes=tuple(kept))


def improve(feedback: AutomaticFeedback, kl: float = 0.05) -> pl.Recipe:
    """The second stage."""
    return pl.vary(
        pl.recipe("ppo", kl=kl),
        draw=NovelInstructions(),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=feedback, shadow=True)),
    )


def imitate(steps: int, lr: float) -> pl.Recipe:
    """The third stage: the model "writer" writes, a fresh one imitates."""
    return pl.vary(
        pl.recipe("sft"),
        draw=NovelInstructions(),
        collect=pl.links(pl.Sample(n=1, model="writer"), KeepInstances(), pl.Offline()),
        references={"writer": "policy"},
        optimiser=pl.AdamW(lr=lr),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )


def build(
    rl: bool = True,
    feedback: Literal["rule", "random"] = "rule",
    positive: bool = False,
    kl: float = 0.05,
    steps: int = 40,
    lr: float = 3e-4,
) -> pl.Pipeline:
    """`steps` and `lr` of the last stage; `kl` weighs the KL to the start in the second."""
    rew, und, *rest = WEIGHTS
    weights = (rew, abs(und) if positive else und, *rest)
    second = improve(AutomaticFeedback(weights=weights, feedback=feedback), kl)
    models = {"writer": pl.Output("rl")} if rl else {}
    last = pl.Part(imitate(steps, lr), models=models)
    return pl.Pipeline(parts={"rl": pl.Part(second), "sft": last} if rl else {"sft": last})
