"""Cog-Rethinker: the model splits a problem that it cannot solve directly, and then corrects a wrong
attempt at it.

Three stages, each with eight answers and a prompt of its own:

    1 direct         the question; a prompt with right and wrong answers is a group of DAPO
    2 decomposition  if no answer was right: the model is asked to split the question, after similar
                     questions that were solved this way
    3 reflection     if still no answer was right: the model is asked to correct a wrong attempt, after
                     similar corrections that came out right

    L = L_DAPO(groups with right and wrong answers, each in its own prompt)
        + lambda E[-log pi(right answer of stage 2 or 3 | the bare question)]

(arXiv:2510.15979). The second term teaches the direct prompt what the other prompts achieved. Answers
are compared within their stage only, and those of earlier stages are muted; where all or none are
right only the second term has a gradient. L_DAPO clips at 0.2 and 0.28, takes the mean over tokens, has
no KL, and draws groups with equal rewards again.

The newest right answer of stages 2 and 3 to each question is remembered, and the `shots` most similar
questions by BM25 are shown (this needs the extra `search`); `seeds` are shown while there are none.
Prompts that stage 3 does not solve are left out. A right answer is tokenised again after the bare
question, where it was not sampled. At most `most` answers a prompt are imitated, never more than the
stage sampled.

The equations and lambda = 0.1 are inferred from the abstract and public reviews; the prompts are ours.
All stages count as sampled tokens of the run's budget.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Cog-Rethinker: hierarchical metacognitive rollout",
    paper="arXiv:2510.15979",
    claim="Decomposing and reflecting on what nobody solves, and imitating what came of it in the "
    "direct prompt, needs fewer samples than RL with one prompt.",
    source="abstract and public reviews (three stages, BM25 buffers, DAPO with an SFT loss); equations "
    "and lambda inferred",
    size=pl.Size(
        setting="Qwen2.5-1.5B and 7B base models on mathematics, nine benchmarks",
        model="qwen2.5-1.5b",
    ),
    needs=pl.needs.Requirements(
        shows="answers_spread",
        off={"stages": ()},
        own={"schedule.prompts": 4, "size": 0, "collect.links.0.n": 3},
    ),
    use="It helps where the model solves a problem with a better prompt than the direct one; the further "
    "stages cost up to 16 answers for each prompt that nobody solves.",
    lacks=(
        "The paper's prompts for the stages are not there, nor are its seed examples: ours "
        "are one sentence each, and `seeds` is empty.",
        "The paper's lambda is not known to us: 0.1 is inferred.",
    ),
    grade="A",
)
STAGE, MARK, NOTES = "stage", "reattached", "recollected"
DECOMPOSE = "Split the problem into smaller ones, solve each of them, and conclude."
REFLECT = "Find the mistake in the answer, and correct it."
Shot = tuple[str, str]  # a question and its answer


@pl.declare(columns=(("recollected", dict, "by stage, remembered questions with their answers"),))
@pl.stage
class Recollect:
    """A task with the `shots` remembered answers of each stage whose questions are most like its
    own, in its column "recollected".
    """

    shots: int = 1

    def __call__(self, task: pl.Task, notes: Sequence[pl.curriculum.Note]) -> pl.Task:
        shots = {n: self._like(task, [x for x in notes if x.facts[STAGE] == n]) for n in (2, 3)}
        return replace(task, meta={**task.meta, NOTES: shots})

    def _like(self, task: pl.Task, notes: Sequence[pl.curriculum.Note]) -> tuple[Shot, ...]:
        asked = pl.tasks.question_text(task)
        others = sorted((n for n in notes if n.facts["question"] != asked), key=lambda n: n.about)
        if not others:
            return ()
        index = pl.services.BM25(tuple((str(i), n.facts["question"]) for i, n in enumerate(others)))
        hits = index.search(asked, self.shots)
        return tuple((others[int(i)].facts["question"], others[int(i)].text) for i, *_ in hits)


def successes(group: pl.Group) -> list[pl.curriculum.Note]:
    """What a group's stages 2 and 3 bring to remember: the first right answer."""
    right = [e for e in group.valid if e.facts.get(STAGE) and e.solved]
    asked = pl.tasks.question_text(group.task)
    return [
        pl.curriculum.Note(
            text=pl.response_text(e),
            about=f"{e.facts[STAGE]:g} {asked}",
            facts={STAGE: e.facts[STAGE], "question": asked},
        )
        for e in right[:1]
    ]


@pl.stage
class Decomposed:
    """The question behind solved ones, to be split."""

    instruction: str = DECOMPOSE
    seeds: tuple[Shot, ...] = ()

    def __call__(self, ctx: pl.Context, group: pl.Group, rng: np.random.Generator) -> pl.Task:
        with_examples = behind(group.task, group.task.meta.get(NOTES, {}).get(2) or self.seeds)
        return instructed(with_examples, self.instruction)


@pl.stage
class Reflected:
    """The question behind corrected ones, a wrong attempt at it, and that it is wrong. None where
    there is no attempt to correct.
    """

    instruction: str = REFLECT
    seeds: tuple[Shot, ...] = ()
    attempt: pl.rollout.Rewrite = pl.Feedback("verdict")

    def __call__(
        self, ctx: pl.Context, group: pl.Group, rng: np.random.Generator
    ) -> pl.Task | None:
        prompt = self.attempt(ctx, group, rng)
        if prompt is None:
            return None
        with_examples = behind(prompt, group.task.meta.get(NOTES, {}).get(3) or self.seeds)
        return instructed(with_examples, self.instruction)


def instructed(task: pl.Task, text: str) -> pl.Task:
    """The task with an instruction before it, if there is one."""
    message = pl.Message(role="system", content=text)
    return pl.tasks.add_instruction(task, message) if text else task


def behind(task: pl.Task, shots: Sequence[Shot]) -> pl.Task:
    """The question behind solved ones."""
    examples = "\n".join(f"example:\n{q}\n{a.strip()}" for q, a in shots)
    at = next(i for i, m in enumerate(task.prompt) if m.role == "user")
    first = task.prompt[at]
    asked = replace(first, content=f"{examples}\nnow:\n{first.content}")
    prompt = (*task.prompt[:at], asked, *task.prompt[at + 1 :])
    return replace(task, prompt=prompt) if shots else task


@pl.declare(
    facts=(("stage", float, "the stage of rethinking that gave the answer, from 2"), "stratum")
)
@pl.stage
class Rethink:
    """A further stage, whose answers take the place of those so far: `rewrite` sees these, and
    `link` attempts what it makes of the task.
    """

    rewrite: pl.rollout.Rewrite
    link: pl.Collect
    number: int

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        task = self.rewrite(ctx, group, pl.rng_of((*key, "rethink")))
        if task is None:
            return group
        attempt = pl.Under(lambda *_: task, self.link, STAGE, self.number)
        return await pl.Instead(attempt)(ctx, key, group)


@pl.declare(
    facts=(("reattached", float, "1 for a right answer that was added as a demonstration"),)
)
@pl.stage
class Reattach:
    """Up to `most` right answers of the last stage as demonstrations of the bare task, with the
    fact "reattached".
    """

    most: int = 8

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        right = [e for e in group.valid if e.facts.get(STAGE) and not e.muted and e.solved]
        made = [
            self._demonstration(ctx, group.task, pl.response_text(e)) for e in right[: self.most]
        ]
        return replace(group, episodes=(*group.episodes, *made))

    def _demonstration(self, ctx: pl.Context, task: pl.Task, text: str) -> pl.Episode:
        of = f"task {task.id!r}: its own right answer"
        made = pl.recorded_episode(ctx, "policy", task.prompt, text, 1.0, of=of, judged=False)
        return replace(made, facts={**made.facts, MARK: 1.0})


def by_stage(table: pl.Table, episode: int) -> tuple[int, Any]:
    """Answers of one stage to one task are compared with one another."""
    return int(table.group_E[episode]), table.episodes[episode].facts.get("stratum", 0)


def build(
    decompose: str = DECOMPOSE,
    reflect: str = REFLECT,
    stages: tuple[Literal[2, 3], ...] = (2, 3),
    imitate: float = 0.1,
    shots: int = 1,
    seeds: tuple[tuple[Shot, ...], tuple[Shot, ...]] = ((), ()),
    most: int = 8,
    size: int | None = None,
) -> pl.Recipe:
    """`imitate` is lambda; without `stages` it is DAPO. `size` is how many groups a step trains on,
    None = as many as it draws, 0 = all that are drawn; it drops those whose answers are alike, muted ones among them where
    right answers are imitated, which a group that is all right in the end gives.
    """
    sample, score = pl.Sample(n=8), pl.Score()
    again = {
        2: Rethink(Decomposed(decompose, seeds[0]), pl.links(sample, score), 2),
        3: Rethink(Reflected(reflect, seeds[1]), pl.links(sample, score), 3),
    }
    further = [pl.When(pl.none_right, again[n]) for n in stages]
    reattach = [Reattach(most)] if imitate and stages else []
    dapo: Any = pl.On(MARK, pl.Clipped(high=0.28, reduce="tokens"), over="own", absent=True)
    imitation = imitate * pl.On(MARK, pl.Imitation(), over="own")
    return pl.vary(
        pl.recipe("grpo"),
        draw=pl.curriculum.Recalled(Recollect(shots), most=1024),
        observe=pl.curriculum.Memorise(successes, most=1024),
        collect=pl.links(sample, score, *further, *reattach),
        credit=pl.chain(pl.Fact(MARK), pl.Center(by_stage), pl.Scale(by_stage, ddof=1)),
        objective=dapo + imitation if reattach else dapo,
        **({"pool": pl.Mixed(size or 0, trained=not reattach)} if size != 0 else {}),
    )
