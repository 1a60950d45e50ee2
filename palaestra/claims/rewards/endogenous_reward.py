"""The claim of endogenous-reward: Endogenous generalist reward from next-token prediction (inverse
RL).
"""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.claims.beyond import BestAccuracy, untrained
from palaestra.claims.sentences import sentences
from palaestra.recipes.rewards.endogenous_reward import build

TASKS = 192


@pl.stage
class OtherAnswers:
    """A reward, given to the answers of its group in another order."""

    reward: pl.RewardFn

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        rewards = list(await pl.judge_group(ctx, self.reward, group))
        rng = pl.rng_of(("other answers", ctx.seed, ctx.step, group.task.id))
        return [
            replace(r, total=other.total)
            if isinstance(r, pl.Reward) and isinstance(other := rewards[int(k)], pl.Reward)
            else r
            for r, k in zip(rewards, rng.permutation(len(rewards)), strict=True)
        ]


def arm(recipe: pl.Recipe) -> pl.Recipe:
    """8 prompts with 8 answers a step."""
    return pl.vary(recipe, schedule=pl.Schedule(prompts=8, steps=400))


def by_group(reward: pl.RewardFn) -> pl.Recipe:
    """The same reward and KL with GRPO's advantage in the place of PPO's critic."""
    return pl.vary(
        pl.recipe("grpo", kl=0.01),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward, shadow=True)),
        references={"ref": "policy"},
    )


REWARD = pl.rewards.Endogenous("ref", alpha=1.0, per_token=False)

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=untrained(TASKS),
    arms={
        "ppo": arm(build()),
        "grpo": arm(by_group(REWARD)),
        "per token": arm(by_group(replace(REWARD, per_token=True))),
        "other answers": arm(by_group(OtherAnswers(REWARD))),
    },
    expect=pl.ledger.Greater(
        "grpo",
        "start",
        by=0.02,
        why="two points, beyond what a lower temperature gives for nothing",
    ),
    reasons=(pl.ledger.Needs("other answers", "the likelihood of each answer itself"),),
    measure=BestAccuracy(),
    metric="held-out accuracy, the better of greedy and temperature 1; of the start, the best of six",
    tuned={"optimiser.lr": (1e-4,)},
    blocks=pl.ledger.TWENTY_SEEDS,
    task="rec",
    tokens=24_000,
    evaluate=TASKS,
    samples=8,
    seconds=15.0,
    controls={
        "sampled at 1": pl.ledger.Final("sampled_after.pass@1.mean"),
        "pass@8": pl.ledger.Final("sampled_after.pass@8.mean"),
        "length": pl.ledger.Logged("length"),
        "entropy": pl.ledger.Logged("entropy_sampled"),
    },
)


KINDS = (
    "capital",
    "past tense",
    "opposite",
)  # whose answers are words, and no letters like A and B
SHARES = 5  # of the facts: each seed that decides has one of its own, all others share a sixth
CHOOSING = 1000  # the first of those others
WRONG = 4  # other answers that each right one is paired with
WORDS = {
    "which is better": pl.Pairwise().template,
    "which is right": "{question}\n\nA: {a}\nB: {b}\n\nWhich of the two is the right answer? {instruction}",
    "judge it": pl.Judge().template,
    "is it right": "{question}\n\nAnswer: {response}\n\nIs this the right answer? {instruction}",
}


@pl.value_class
class AnswerPair:
    """Two answers to a question; `other` is another question of the kind, to which neither is an answer."""

    kind: str
    question: str
    right: str
    wrong: str
    other: str


@pl.stage
class Ranking:
    """A program: in how many pairs of a right and a wrong answer to a question a reward is higher for
    the right one, ties half. The wrong answers are right ones to other questions of the kind.

    `own`: whether the reward sees the question itself, or another one of its kind; `words`: of
    `WORDS`, how a judge is asked.
    """

    reward: pl.RewardFn
    own: bool = True
    words: str = ""

    async def run(self, ctx: pl.Context) -> pl.Result:
        pairs = pairs_of(ctx.seed)
        margins = (self._margin(ctx, i, p) for i, p in enumerate(pairs))
        margin_N = np.array(await asyncio.gather(*margins))
        kind_N = np.array([p.kind for p in pairs])
        of_kinds = {f"ranked/{k}": ranked(margin_N[kind_N == k]) for k in KINDS}
        more_N = np.array([len(p.right) > len(p.wrong) for p in pairs])
        shares = {
            "ranked": ranked(margin_N),
            "more letters": ranked(margin_N[more_N]),
            **of_kinds,
        }
        return pl.Result(metrics={**shares, "sampled_tokens": 0})

    async def _margin(self, ctx: pl.Context, index: int, pair: AnswerPair) -> float:
        """How much higher the right answer's reward is."""
        asked = pl.Message(role="user", content=pair.question if self.own else pair.other)
        task = pl.Task(
            id=f"pairs/{ctx.seed}-{index}",
            prompt=(asked,),
            answer=pair.right,
            meta={"chosen": pair.right, "rejected": pair.wrong},
        )
        group = await pl.Recorded()(ctx, ("pairs", index), pl.Group(task=task))
        reward: Any = self.reward
        judge = replace(reward, template=WORDS[self.words]) if self.words else reward
        rewards = list(await pl.judge_group(ctx, judge, group))
        for each in rewards:
            if isinstance(each, pl.Fault):
                raise each
        chosen, rejected = (r.total for r in rewards if isinstance(r, pl.Reward))
        return chosen - rejected


def pairs_of(seed: int) -> list[AnswerPair]:
    """Of the facts that are the seed's share, `WRONG` pairs each."""
    rng = pl.rng_of(("pairs of facts", seed))
    every = [fact for fact in pl.toys.CommonFacts().known if fact[0] in KINDS]
    order = pl.rng_of(("shares of facts",)).permutation(len(every))
    share = seed % SHARES if seed < CHOOSING else SHARES
    pairs: list[AnswerPair] = []
    for kind, question, right in (every[int(k)] for k in order[share :: SHARES + 1]):
        others = [(q, answer) for k, q, answer in every if k == kind and answer != right]
        for wrong in rng.choice(sorted({answer for _, answer in others}), WRONG, replace=False):
            other = str(rng.choice(sorted(q for q, answer in others if answer != wrong)))
            pairs.append(
                AnswerPair(kind=kind, question=question, right=right, wrong=str(wrong), other=other)
            )
    return pairs


def ranked(margins_N: np.ndarray) -> float:
    return float(((np.sign(margins_N) + 1) / 2).mean()) if len(margins_N) else float("nan")


LIKELIHOOD = pl.rewards.Endogenous("policy")
IS_RIGHT = "A good response is the right answer to the question."
SMALL = replace(
    EXPERIMENT,
    words=__file__ + "#small",
    start=None,
    arms={
        "start": Ranking(LIKELIHOOD, own=False),
        "endogenous": Ranking(LIKELIHOOD),
        "per token": Ranking(pl.rewards.Endogenous("policy", per_token=True)),
        "A or B": Ranking(
            pl.Pairwise(read=pl.judges.Odds("A", "B"), rubric=IS_RIGHT), words="which is better"
        ),
        "yes or no": Ranking(pl.Judge(read=pl.judges.Odds(), rubric=IS_RIGHT), words="judge it"),
    },
    constants={
        "A or B": {"words": ("which is better", "which is right")},
        "yes or no": {"words": ("judge it", "is it right")},
    },
    expect=pl.ledger.Greater(
        "endogenous", "A or B", by=0.1, why="ours: one pair in ten; a coin ranks half of them"
    ),
    reasons=(pl.ledger.Needs("start", "the question itself, and not one of its kind"),),
    vetoes={"yes or no": pl.ledger.Veto(pl.ledger.Final("ranked"), falls=0.0, against="yes or no")},
    measure=pl.ledger.Final("ranked"),
    metric="share of pairs in which the right answer has the higher reward, ties half",
    **sentences(tuned={}, task="facts", tokens=1, evaluate=0, samples=0, seconds=30.0),
    controls={
        "capitals": pl.ledger.Final("ranked/capital"),
        "past tenses": pl.ledger.Final("ranked/past tense"),
        "opposites": pl.ledger.Final("ranked/opposite"),
        "right one has more letters": pl.ledger.Final("more letters"),
    },
)
