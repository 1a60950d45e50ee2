"""J1: judging as a verifiable task, with a reward for being right in both orders of a pair.

A pair with a known better response is judged twice in one batch, as (a, b) and as (b, a); a rollout of one order belongs to the
rollout of the other with its number (arXiv:2505.10320). Rule-based rewards, then GRPO within each order:

    PaV   verdict A or B:            correct + consistent,  consistent = 1 for both if both orders are right, else 0
    PaVS  verdict and two scores:    as PaV; the scores are free
    PaS   two scores:                1 if the better response has the higher score; a tie 0 (the check `by_scores`)
    PoS   one response, one score:   1 for both calls of a pair if the better response's score is the higher one; a tie 0

A constant verdict is right half the time and never consistent. A verdict that is missing, or names both, is 0, and so is a
score that cannot be read; where one order is an error, the pair is one. An episode is a pair: its two judgements are rows of
their own, turns 0 and 1, each paid by the world (`compare-pairs`; `judge-pairs` for PoS, with mode="correctness"); what is paid
above 0 is right. On a bench of single questions this is GRPO. Texts under judgement are not to be trusted: take verdict marks
out of them before you build such tasks.
"""

import re
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from palaestra.card import Card, Size
from palaestra.credit.links import Center, Scale, chain
from palaestra.credit.table import Table, Values
from palaestra.credit.turns import turn_rewards
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.objective.policy import Clipped
from palaestra.objective.track import Track
from palaestra.pipeline import Output, Part, Pipeline
from palaestra.recipes.base import grpo, sft
from palaestra.rollout.collect import links
from palaestra.rollout.recorded import recorded
from palaestra.step import Recipe, Schedule
from palaestra.toys.base import written
from palaestra.types import Group, Key, Task, rng_of, stage
from palaestra.update import AdamW
from palaestra.values import vary

if TYPE_CHECKING:
    from palaestra.context import Context

CARD = Card(
    id="j1-judge",
    family="rewards",
    title="J1: incentivising thinking in LLM-as-a-judge",
    paper="arXiv:2505.10320",
    parent="grpo",
    claim="Rewards for verdicts that are right in both orders teach a judge to think, and to care less about the order.",
    changes={
        "credit": "each order of a pair is its own group; a verdict is paid for being right, and again if both orders are",
        "objective": "shares of consistent and of flipped pairs are logged",
    },
    source="two consistent restatements of the paper and a quotation of its table 8; the pairing by number is inferred",
    paper_scale="Llama 3.1 8B and 3.3 70B, Qwen3 32B; 22k synthetic pairs (17k WildChat, 5k MATH), GRPO",
    size=Size(model="llama-3.1-8b"),
)

Mode = Literal["sum", "correctness", "consistency"]
PAIR = re.compile(r"<score_A>\s*([\d.]{1,8})\s*</score_A>.*?<score_B>\s*([\d.]{1,8})\s*</score_B>", re.DOTALL)


@stage
class BothOrders:
    """correct + consistent of each turn (or one of the two): right where it was paid, consistent where all its episode's are.

    Columns `correct`, `consistent`, and `flips`: right in one order and wrong in the other.
    """

    mode: Mode = "sum"

    def __call__(self, x: Values, table: Table) -> Values:
        episode_N = table.turns.episode_N
        right_N = (turn_rewards(table) > 0).astype(float)
        n_E = np.bincount(episode_N, minlength=len(table.episodes))
        share_N = (np.bincount(episode_N, right_N, len(table.episodes)) / np.maximum(n_E, 1))[episode_N]
        found = {
            "correct": right_N,
            "consistent": (share_N == 1).astype(float),
            "flips": ((share_N > 0) & (share_N < 1)),
        }
        for name, x_N in found.items():
            table.columns[name] = Values(level="turn", x_N=x_N.astype(float))
        total = {"sum": right_N + found["consistent"], "correctness": right_N, "consistency": found["consistent"]}
        return Values(level="turn", x_N=total[self.mode])


def by_scores(text: str, task: Task) -> float:
    """1 if the better response's score is the higher one (PaS); answers are 1 or A, 2 or B."""
    found = PAIR.findall(text)
    try:
        a, b = map(float, found[-1])
    except (IndexError, ValueError):
        return 0.0
    return float(a != b and (a > b) == (str(task.answer) in ("1", "A")))


def build(mode: Mode = "sum") -> Recipe:
    return vary(
        grpo.build(),
        credit=chain(BothOrders(mode), Center("position"), Scale("position")),
        objective=Clipped(reduce="sequences") + Track(("correct", "consistent", "flips")),
    )


@stage
class Biased:
    """Demonstrations of a judge who likes the first place: a guess of `= 1` in `first` of the cases, sometimes real work."""

    first: float = 0.8
    works: float = 0.3

    async def __call__(self, ctx: "Context", key: Key, group: Group) -> Group:
        rng = rng_of(key)
        half: Task = group.task.meta["halves"][int(rng.integers(2))]
        source: Any = ctx.bench.tasks
        guess = written([], "1" if rng.random() < self.first else "2")
        reply = source.halves.demonstration(half, rng, "work") if rng.random() < self.works else guess
        return Group(task=group.task, episodes=(recorded(ctx, "policy", half.prompt, reply, 1.0),))


def after_bias(recipe: Recipe) -> Pipeline:
    biased = vary(
        sft.build(), collect=links(Biased()), optimiser=AdamW(lr=1e-3), schedule=Schedule(prompts=32, steps=30)
    )
    return Pipeline(parts={"biased": Part(biased), "rl": Part(recipe, model=Output("biased"))})


EXPERIMENT = Experiment(
    claim="On pairs in both orders, from a start that likes the first place, paying consistency makes more held-out pairs right "
    "in both than paying correct verdicts alone.",
    arms={
        "correctness": after_bias(build(mode="correctness")),
        "j1": after_bias(build()),
        "consistency": after_bias(build(mode="consistency")),
    },
    expect=Greater("j1", "correctness"),
    falsified_if="as many pairs are right in both orders without the reward for it",
    measure=Final("sampled_after.pass@1.mean"),
    metric="held-out pairs judged rightly in both orders (temperature 1)",
    task="compare-pairs",
    tokens=40_000,
    evaluate=128,
    samples=4,
    seconds=40.0,
    controls={
        "accuracy of single verdicts": Final(),
        "flips": Logged("flips"),
        "consistent in training": Logged("consistent"),
    },
    note="Two final answers of a chain stand for two responses, and the start is trained to prefer the first place. Pointwise "
    "scores (PoS) cannot flip, and tie instead: `palaestra train j1-judge mode=correctness --task judge-pairs` is that.",
)
