"""Multi-round thinking: the model answers, and answers again with its own final answer in the prompt;
the last round counts. Nothing is trained.

    round 1:      the question
    round r + 1:  the question, "The assistant's previous answer is: <answer> A_r </answer>, and
                  please re-answer."

A_r is the final answer alone: the reasoning is dropped, so the prompt keeps its length and the model
works the problem out anew (arXiv:2503.19855). Where an answer cannot be read, the plain question is
asked again; `keep="reply"` shows the whole reply behind its thinking, as for programs.

`chains` of rounds are sampled for every held-out problem. The run reports the accuracy of each round,
and of neighbouring rounds

    a = P(right stays right),   b = P(wrong becomes right)
    p_{r+1} = a p_r + b (1 - p_r),   which rests at b / (1 - a + b)

so another round helps as long as the accuracy is below that point. `palaestra search --with
multi-round` answers the problems of a file so, and `palaestra eval --with multi-round` compares it with
the majority vote at equal tokens.

On the embedded problem the model first imitates answers to questions that show a previous answer, half
of them a wrong one: it has never read such a question.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Multi-round Thinking",
    paper="arXiv:2503.19855",
    claim="Answering again with the previous answer in the prompt raises accuracy without training.",
    source="abstract, with its prompt; the transition probabilities are ours",
    size=pl.Size(
        setting="QwQ-32B from 80.3% (round 1) to 82.1% (round 2), DeepSeek-R1 from 79.7% to 82.0%, on "
        "AIME 2024",
    ),
    needs=pl.needs.Requirements(
        columns=(pl.needs.PROMPT, pl.needs.ANSWER),
        shows="shown_again",
        off={"rounds": 1},
        own={"tasks": 2, "chains": 2},
    ),
    use="It helps a model that reasons and corrects more than it spoils; compare it with the majority vote "
    "at equal tokens, `palaestra eval --with multi-round`. A model that has never read such a prompt "
    "answers worse in round 2.",
    lacks=(
        "AIME 2024, MATH-500, GPQA-diamond and LiveCodeBench were not run, nor models of the paper's "
        "size.",
        "Hesitation words are not counted; tokens of each round are.",
        "With keep=answer a reply that states no answer in a known form, such as a program, is followed by "
        "the plain question.",
    ),
    grade="A",
)


@pl.stage
class MultiRoundThinking:
    """A program: the accuracy of each round on held-out problems, and what changes between rounds.

    Args:
        rounds: of a chain; 1 = one answer.
        chains: for each problem, each with rounds of its own.
        keep: what is shown of a round in the next: "answer", or "reply", the whole of it.
        temperature: of the answers.
        tasks: held-out problems.
    """

    rounds: int = 2
    chains: int = 4
    keep: pl.worlds.ShownAgain = "answer"
    temperature: float = 1.0
    tasks: int = 64

    async def run(self, ctx: pl.Context) -> pl.Result:
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        keys = [(ctx.key("rounds", i, c), i) for i in numbers for c in range(self.chains)]
        chains = await asyncio.gather(
            *(self.chain(ctx, key, ctx.bench.tasks.task("test", i)) for key, i in keys)
        )
        whole = [(i, c) for (_, i), c in zip(keys, chains, strict=True) if all(e.ok for e in c)]
        if not whole:
            raise pl.Fault("rounds", f"no chain could be answered: {chains[0][-1].status}")
        for r in range(self.rounds):
            groups = [
                pl.Group(
                    task=ctx.bench.tasks.task("test", i),
                    episodes=tuple(c[r] for j, c in whole if j == i),
                )
                for i in numbers
            ]
            ctx.attempted(f"round {r + 1}", groups)
        metrics = measure_rounds([i for i, _ in whole], [c for _, c in whole])
        for number, each in enumerate(metrics["rounds"], start=1):
            ctx.log({"round": number, **each})
        ends = metrics["rounds"][0]["accuracy"], metrics["rounds"][-1]["accuracy"]
        return pl.Result(
            metrics={
                **pl.ends.at_ends(*ends),
                **metrics,
                "sampled_tokens": ctx.sampled_tokens,
            }
        )

    async def chain(self, ctx: pl.Context, key: pl.Key, task: pl.Task) -> list[pl.Episode]:
        """The scored answers of all rounds. Raises UserError for a problem without a question."""
        if not task.prompt:
            raise pl.UserError(
                f"{ctx.bench.name} asks no question that a previous answer could be shown behind; "
                "use a task of questions, or --data"
            )
        sample, prompt = pl.Sample(n=1, temperature=self.temperature), task.prompt
        answers: list[pl.Episode] = []
        for r in range(self.rounds):
            asked = pl.Group(task=replace(task, prompt=prompt))
            round_group = await sample(ctx, (*key, r), asked)
            (e,) = (await pl.Score()(ctx, (*key, r), replace(round_group, task=task))).episodes
            answers.append(replace(e, prompt=prompt))
            answer = pl.worlds.previous_answer(e, self.keep) if e.ok else ""
            prompt = pl.worlds.ask_again(task.prompt, answer)
        return answers


def measure_rounds(
    problems: Sequence[int], chains: Sequence[Sequence[pl.Episode]]
) -> dict[str, Any]:
    """Of each round the accuracy with its interval over problems, tokens, and how often a previous
    answer was shown; `kept` and `mended`, a and b above, over all neighbouring rounds (None where
    nothing was right, or wrong), with where they lead.
    """
    right_CR = np.array([[e.solved for e in chain] for chain in chains])
    rounds = [
        {
            "accuracy": {"of": "accuracy"} | mean_over_problems(problems, right_CR[:, r]).json(),
            "tokens": float(np.mean([chain[r].n_sampled for chain in chains])),
            "shown_again": float(np.mean([r > 0 and chain[r].prompt != chain[0].prompt for chain in chains])),
        }
        for r in range(right_CR.shape[1])
    ]  # fmt: skip
    a, b = transitions(right_CR)
    rest = None if a is None or b is None else resting_point(a, b)
    return {"rounds": rounds, "kept": a, "mended": b, "resting_point": rest}


def mean_over_problems(problems: Sequence[int], right_C: np.ndarray) -> pl.stats.Interval:
    """The mean over problems of the share of their chains that is right."""
    numbers_C = np.array(problems)
    return pl.stats.bounded_interval(
        [float(right_C[numbers_C == i].mean()) for i in dict.fromkeys(problems)]
    )


def transitions(right_CR: np.ndarray) -> tuple[float | None, float | None]:
    """(a, b): the shares of right answers that stay right and of wrong ones that become right in the
    next round; None where there are none.

    Args:
        right_CR: whether the answer of each chain is right in each round.
    """
    before, after = right_CR[:, :-1].ravel(), right_CR[:, 1:].ravel()
    share = lambda of: float(after[of].mean()) if of.any() else None
    return share(before), share(~before)


def next_accuracy(p: float, a: float, b: float) -> float:
    """a p + b (1 - p): the accuracy of the next round."""
    return a * p + b * (1 - p)


def resting_point(a: float, b: float) -> float | None:
    """b / (1 - a + b), the accuracy that another round does not change; None where every one is
    (a = 1, b = 0).
    """
    return b / (1 - a + b) if 1 - a + b > 0 else None


# ---- the embedded problem


@pl.stage
class DemonstrateAgain:
    """Adds a demonstration to the question with a previous answer, which is wrong in one half of the
    cases; one of `plain` has none. Answers are digits.
    """

    plain: int = 3
    recorded: ClassVar[bool] = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        rng, task = pl.rng_of((*key, "again")), group.task
        earlier = ""
        if rng.integers(self.plain):
            right = rng.random() < 0.5
            earlier = str((int(task.answer) + (0 if right else int(rng.integers(1, 10)))) % 10)
        asked = replace(task, prompt=pl.worlds.ask_again(task.prompt, earlier))
        made = await pl.Demonstrate()(ctx, key, pl.Group(task=asked))
        return replace(group, episodes=(*group.episodes, *made.episodes))


def build(
    rounds: int = 2,
    chains: int = 4,
    tasks: int = 64,
    keep: str = "answer",
    temperature: float = 1.0,
) -> MultiRoundThinking:
    """`chains` of `rounds` answers to each of `tasks` held-out problems."""
    if min(rounds, chains, tasks) < 1:
        raise pl.UserError("rounds, chains and tasks are 1 or more")
    if keep not in ("answer", "reply"):
        raise pl.UserError(f"keep is 'answer' or 'reply', not {keep!r}")
    return MultiRoundThinking(rounds, chains, keep, temperature, tasks)


def embedded(
    steps: int = 20, rounds: int = 3, chains: int = 4, tasks: int = 32, temperature: float = 1.0
) -> pl.Pipeline:
    """The embedded model learns to read the prompt in `steps` steps, and answers in rounds."""
    form = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(DemonstrateAgain()),
        optimiser=pl.AdamW(lr=1e-3, warmup=5),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )
    exam = build(rounds, chains, tasks, temperature=temperature)
    return pl.Pipeline(
        parts={"form": pl.warm(form), "rounds": pl.Part(exam, model=pl.Output("form"))}
    )
