"""REFINE-AF: instructions that a model makes up, instances rewarded by automatic feedback, and a fresh
model fine-tuned on them.

Three stages (arXiv:2505.06548):

    1. instructions: `author`, a language model, is shown 8 seed instructions and writes one more; it is
       kept where the ROUGE-L to every earlier one is below 0.7
    2. PPO on the instances that the policy writes, with KL to the start
           R = 0.0078 Rew - 0.4421 Und + 0.3212 Nat + 0.1520 Coh - 0.0274
       Rew of a reward model; Und, Nat and Coh how understandable, natural and coherent it is
    3. the trained model writes an instance for each instruction, and the run's own start, fresh, imitates
       them: no gold answer is shown to it

The coefficients are those of the rule of Instruction Mining, a regression of another data set's
loss; Und has a negative one (`weights`). A reward is of the whole instance: of an instruction and its
output, with an empty input. No verdict of a verifier is in it.

The seeds are the prompts of the user's file. `author` and `judge` are the frozen start of the run, unless
others are given. Und, Nat and Coh are p(yes) / (p(yes) + p(no)) of the judge's answer to a question, as of
UniEval's; `und`, `nat` and `coh` put other rewards in their place, and `rew` gives a reward model, without
which the judge is asked whether the instance is helpful. A judge behind an endpoint has to show
log-probabilities.

What is written in the third stage stands in the rollouts of the part "sft". An instance that is empty or was
cut is not imitated.

Deviations: each stage makes up its own instructions; the coefficients and the threshold are from memory; the
KL's weight is not known. A safety filter is the user's to add before anything is released.
What SmolLM2 makes of it stands in docs/runs.md.

Long because the paper is three stages without gold answers: a draw that makes up novel instructions, a
reward of four qualities that a judge is asked about, and a fresh model's imitation of the writer.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

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
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("Name three rivers.", "Explain why the sky is blue.", "Write a line about tea."),
                "a seed instruction, of which some hundred are shown to the author in turn",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "author",
                "author",
                "makes up the instructions",
                inert=None,
                otherwise="the model itself, as it is at the start, makes them up",
            ),
            pl.needs.NeededModel(
                "judge",
                "judge",
                "says how understandable, natural and coherent an instance is",
                inert=None,
                otherwise="the model itself, as it is at the start, is asked",
            ),
            pl.needs.NeededModel(
                "reward model",
                "rew",
                "scores an instance",
                inert=None,
                otherwise="the judge is asked whether the instance is helpful",
            ),
        ),
        shows="part/und",
        never_off="It is a term of the reward, the fluency that a language model gives to a text, "
        "which is above 0 for any text.",
        own={
            "rl.schedule.prompts": 2,
            "rl.collect.links.0.n": 2,
            "rl.draw.tries": 1,
            "sft.schedule.prompts": 2,
            "sft.draw.tries": 1,
            "max_tokens": 12,
        },
    ),
    use="It helps where nothing can be checked, there are a few hundred seed instructions, and the judge "
    "is a better model than the one that is trained.",
    lacks=(
        "Instructions that the model made up are not shown to the author again: its examples "
        "are the seeds alone.",
        "Each stage makes up its own instructions; no common set is made once.",
        "Instances have an instruction and an output, and no input; labels are not written "
        "first for classification.",
        "The coefficients of the reward and the threshold of novelty are from memory.",
        "Super-NaturalInstructions is not evaluated.",
    ),
    grade="B",
)
WEIGHTS = (0.0078, -0.4421, 0.3212, 0.1520, -0.0274)  # of Rew, Und, Nat, Coh, and the constant
NOVEL = 0.7
POOL = 1024  # instructions that a further one is compared with
AUTHOR, JUDGE, WRITER = "author", "judge", "writer"
QUESTIONS = {
    "rew": "Is this a helpful response to the instruction?",
    "und": "Is this an understandable response to the instruction?",
    "nat": "Is this a natural response to the instruction?",
    "coh": "Is this a coherent response to the instruction?",
}


def feedback_score(
    rew: float, und: float, nat: float, coh: float, weights: Sequence[float] = WEIGHTS
) -> float:
    """R of one instance."""
    return float(np.dot(weights[:4], (rew, und, nat, coh)) + weights[4])


def is_novel(similarities: Sequence[float], most: float = NOVEL) -> bool:
    """Whether an instruction is unlike all others: each ROUGE-L below `most`."""
    return all(x < most for x in similarities)


def read_instruction(reply: str) -> str:
    """The first line of a reply that says something, without a number or a bullet in front."""
    for line in reply.splitlines():
        text = re.sub(r"^\s*(?:[-*]|\d+[.)])\s+", "", line).strip().strip('"').strip()
        if text:
            return text
    return ""


async def make_up(ctx: pl.Context, client: pl.Source, examples: Sequence[str], seed: int) -> str:
    """A further instruction by a language model that is shown others; "" = it writes none."""
    listed = "\n".join(f"- {text}" for text in examples)
    request = pl.ChatRequest(
        messages=pl.services.question_messages(
            f"Write one more instruction, unlike these:\n{listed}"
        ),
        temperature=1.0,
        max_tokens=128,
    )
    return read_instruction(await ctx.ask(client, request, seed=seed % (1 << 31)))


@pl.stage
class NovelInstructions:
    """Draws instructions that are unlike the earlier ones; those of the task in their order, or with
    `client` such as a language model makes up from `shown` of them.

    Where `tries` in a row are too much alike the last one is taken, so that a small set of seeds may
    start over. An empty reply of the client is a try that failed; a Fault ends the run where all of
    them are.
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
        tasks: list[pl.Task] = []
        while len(tasks) < n:
            last: pl.Task | None = None
            words = list[str]()
            for at in range(self.tries):
                drawn, inner = self.source(ctx, (*key, len(tasks), at), 1, inner)
                task = await self._made_up(ctx, (*key, len(tasks), at), drawn[0])
                if task is not None:
                    last, words = task, pl.curriculum.prompt_text(task).split()
                    if is_novel([pl.verifiers.rouge_l(words, other) for other in seen], self.most):
                        break
                dropped += 1
            if last is None:
                raise pl.Fault(
                    "starved",
                    f"the author wrote no instruction in {self.tries} tries; use a larger model",
                )
            tasks.append(last)
            seen = [*seen, words][-POOL:]
        return tasks, {**state, "inner": inner, "seen": seen, "dropped": dropped}

    async def _made_up(self, ctx: pl.Context, key: pl.Key, task: pl.Task) -> pl.Task | None:
        """The task itself, or what the client makes up; None = it wrote nothing."""
        if self.client is None:
            return task
        rng, tasks = pl.rng_of(key), ctx.bench.tasks
        size = tasks.size or 1 << 20
        examples = [tasks.task("train", int(rng.integers(size))) for _ in range(self.shown)]
        instruction = await make_up(
            ctx, self.client, list(map(pl.curriculum.prompt_text, examples)), pl.seed_of(key)
        )
        if not instruction:
            return None
        prompt = (pl.Message(role="user", content=instruction),)
        return pl.Task(id=f"made-up/{pl.seed_of(key)}", prompt=prompt, domain=task.domain)


@pl.stage
class AutomaticFeedback:
    """R of every instance of a group, with its four qualities as parts."""

    rew: pl.RewardFn
    und: pl.RewardFn
    nat: pl.RewardFn
    coh: pl.RewardFn
    weights: tuple[float, ...] = WEIGHTS

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward | pl.Fault]:
        judges = {"rew": self.rew, "und": self.und, "nat": self.nat, "coh": self.coh}
        scores = {n: await pl.judge_group(ctx, judge, group) for n, judge in judges.items()}
        return [self.join({n: x[i] for n, x in scores.items()}) for i in range(len(group.episodes))]

    def join(self, scores: Mapping[str, pl.Reward | pl.Fault]) -> pl.Reward | pl.Fault:
        """R of one instance; a Fault where one of its scores is."""
        parts = dict[str, float]()
        for name, score in scores.items():
            if isinstance(score, pl.Fault):
                return score
            parts[name] = score.total
        return pl.Reward(total=feedback_score(**parts, weights=self.weights), parts=parts)


def ask_quality(name: str, judge: pl.Source) -> pl.Judge:
    """One of the four qualities, as p(yes) of a judge's answer to its question."""
    template = (
        f"{QUESTIONS[name]}\ninstruction: {{question}}\nresponse: {{response}}\n{{instruction}}"
    )
    return pl.Judge(client=judge, template=template, read=pl.judges.Odds(), name=name)


@pl.stage
class KeepInstances:
    """Mutes instances that are empty, cut or failed, so that nobody imitates them."""

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        kept = tuple(e if self.keeps(e) else replace(e, muted=True) for e in group.episodes)
        return replace(group, episodes=kept)

    def keeps(self, episode: pl.Episode) -> bool:
        whole = episode.ok and episode.status == "finished"
        return whole and bool(pl.response_text(episode).strip())


def improve(reward: pl.RewardFn, draw: NovelInstructions, kl: float = 0.05) -> pl.Recipe:
    """The second stage."""
    return pl.vary(
        pl.recipe("ppo", kl=kl),
        draw=draw,
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward)),
    )


def imitate(
    steps: int, lr: float, draw: NovelInstructions, keep: pl.Collect = KeepInstances()
) -> pl.Recipe:
    """The third stage: the model "writer" writes, a fresh one imitates."""
    return pl.vary(
        pl.recipe("sft"),
        draw=draw,
        collect=pl.links(pl.Sample(n=1, model=WRITER), keep, pl.Offline()),
        references={WRITER: "policy"},
        optimiser=pl.AdamW(lr=lr),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )


def with_start(recipe: pl.Recipe, **clients: pl.Source | None) -> pl.Recipe:
    """A recipe with a frozen copy of its start for each client that is the model of its own name."""
    copies = {name: "policy" for name, x in clients.items() if x == pl.LocalModel(name)}
    return pl.vary(recipe, references={**recipe.references, **copies})


def build(
    rew: pl.RewardFn | None = None,
    und: pl.RewardFn | None = None,
    nat: pl.RewardFn | None = None,
    coh: pl.RewardFn | None = None,
    judge: pl.Source = pl.LocalModel(JUDGE),
    author: pl.Source | None = pl.LocalModel(AUTHOR),
    weights: tuple[float, ...] = WEIGHTS,
    kl: float = 0.05,
    steps: int = 40,
    lr: float = 3e-4,
) -> pl.Pipeline:
    """`judge` says what `rew`, `und`, `nat` and `coh` leave open. Without an `author` the instructions are
    those of the task. `steps` and `lr` are of the last stage, `kl` is the weight of the KL to the start.
    """
    given = {"rew": rew, "und": und, "nat": nat, "coh": coh}
    scores = {name: x or ask_quality(name, judge) for name, x in given.items()}
    draw = NovelInstructions(client=author)
    last = with_start(imitate(steps, lr, draw), author=author)
    second = improve(AutomaticFeedback(**scores, weights=weights), draw, kl)
    asked = judge if None in given.values() else None
    second = with_start(second, author=author, judge=asked)
    models = {WRITER: pl.Output("rl")}
    return pl.Pipeline(parts={"rl": pl.Part(second), "sft": pl.Part(last, models=models)})


def embedded(steps: int = 10, **options: Any) -> pl.Pipeline:
    """On the embedded problem, whose questions are the instructions: the tiny model writes no others."""
    made = build(author=None, steps=steps, **options)
    return pl.override(pl.override(made, "rl.schedule.prompts", 8), "rl.schedule.steps", 10)
