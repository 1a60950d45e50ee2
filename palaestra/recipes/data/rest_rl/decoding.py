"""Stage 2 of ReST-RL: what a value model learns from trees, and answers by a search that it leads."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

import palaestra as pl

VALUE = pl.Learned("value", ("value",))

Method = Literal["vm-mcts", "outcome search", "mixed values", "oracle", "best of n", "greedy"]


@pl.stage
class RateStates:
    """Training rows of a value model from the answers of a tree: every whole answer with its reward,
    and every opened state with the mean reward of the answers that were opened at it and below.
    """

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        rated = [replace(g, episodes=(*g.episodes, *valued_states(g))) for g in groups]
        return pl.Rate()(rated, signals, state)


def valued_states(group: pl.Group) -> list[pl.Episode]:
    """The opened states of a tree as episodes that break off, V their reward."""
    opened: dict[tuple[int, ...], pl.Episode] = {}
    worth: dict[tuple[int, ...], list[float]] = {}
    for e in group.valid:
        if e.reward is None or "shared" not in e.facts:
            continue
        cut = pl.rollout.cut_episode(e, int(e.facts["shared"]))
        path = tuple(i for row in cut.rows for i in row.context())
        opened.setdefault(path, cut)
        worth.setdefault(path, []).append(e.total)
    below = {
        path: [r for other, rewards in worth.items() if other[: len(path)] == path for r in rewards]
        for path in opened
    }
    return [
        replace(cut, reward=pl.Reward(total=float(np.mean(below[path]))))
        for path, cut in opened.items()
    ]


@pl.stage
class MixedValues:
    """The values of states that are judged together, in another order: a placebo."""

    value: pl.RewardFn = VALUE

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        rewards = await self.value(ctx, group)
        lengths = [len(r.context()) for e in group.episodes for r in e.rows[-1:]]
        rng = pl.rng_of(("mixed values", ctx.seed, group.task.id, *lengths))
        return [rewards[i] for i in rng.permutation(len(rewards))]


@pl.stage
class ValueDecoding:
    """A program: answers held-out problems within `tokens` sampled tokens each, and gives of each the
    answer that the model "value" likes best. Where a tree has no node left to open, the rest goes to
    whole answers.

    Its summary has the accuracy of these beside that of greedy answers, and

        found      share of problems of which some answer was right: a ceiling for who chooses
        majority   accuracy of the commonest answer
        ranked     how often the value of a right answer is above that of a wrong one to the same
                   problem, a tie one half
        tokens     sampled a problem; the budget ends with the wave of answers that goes beyond it

    Args:
        method: "vm-mcts" as above; "outcome search" is led by the values of whole answers alone;
            "mixed values" is led by the value of any sibling, a placebo; "oracle" is led and chosen
            by the true reward; "best of n" searches nothing; "greedy" is one greedy answer.
        tokens: of a problem.
        n: answers at a time.
        c, eps: of `pl.rollout.Uct`.
        temperature: of answers.
        tasks: held-out problems.
    """

    method: Method = "vm-mcts"
    tokens: int = 600
    n: int = 5
    c: float = 0.1
    eps: float = 0.1
    temperature: float = 0.7
    tasks: int = 128

    async def run(self, ctx: pl.Context) -> pl.Result:
        before, greedy = await pl.run.greedy_held_out(ctx, self.tasks)
        if self.method == "greedy":
            answers = [
                ValuedAnswers(group=g, values=(0.0,) * len(g.valid), tokens=sampled_in(g))
                for g in greedy
            ]
            return result(ctx, before, before, answers)
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        tasks = [ctx.bench.tasks.task("test", i) for i in numbers]
        answers = await asyncio.gather(*(self._answers(ctx, t) for t in tasks))
        chosen = [replace(a.group, episodes=(a.best(),)) for a in answers if a.group.episodes]
        return result(ctx, before, pl.run.judge_held_out(chosen), answers)

    async def _answers(self, ctx: pl.Context, task: pl.Task) -> "ValuedAnswers":
        key = ctx.key("decode", task.id)
        group = await self._link()(ctx, key, pl.Group(task=task))
        valued = [e for e in group.valid if e.reward is not None]
        bare = replace(group, episodes=tuple(replace(e, reward=None) for e in valued))
        scored = await pl.Score()(ctx, (*key, "true"), bare)
        both = [
            (e, v.total) for e, v in zip(scored.episodes, valued, strict=True) if e.ok and e.reward
        ]
        return ValuedAnswers(
            group=replace(group, episodes=tuple(e for e, _ in both)),
            values=tuple(v for _, v in both),
            tokens=sampled_in(group),
        )

    def _link(self) -> pl.Collect:
        """How a problem is answered; answers come with what the value model, or the oracle, says."""
        score = pl.Score() if self.method == "oracle" else pl.Score(reward=VALUE)
        sample = pl.Sample(n=self.n, temperature=self.temperature)
        whole = pl.links(SampleTokens(sample, self.tokens), score)
        # of a tree whose every node was opened there may be something left
        return whole if self.method == "best of n" else pl.links(self.search(score), whole)

    def search(self, score: pl.Collect) -> pl.rollout.TreeSearch:
        """The tree of a problem."""
        leads = {"vm-mcts": VALUE, "mixed values": MixedValues(VALUE)}
        return pl.rollout.TreeSearch(
            openings=1 << 20,
            n=self.n,
            children=self.n,
            select=pl.rollout.Uct(self.c, self.eps),
            score=score,
            value=leads.get(self.method),
            tokens=self.tokens,
            temperature=self.temperature,
        )


@pl.stage
class SampleTokens:
    """Runs `sample` again and again until `tokens` were sampled, those that are there included."""

    sample: pl.Sample
    tokens: int

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        before = -1
        # where nothing is sampled any more, more of the same would not help
        while before < (spent := sampled_in(group)) < self.tokens:
            group, before = await self.sample(ctx, key, group), spent
        return group


def sampled_in(group: pl.Group) -> int:
    """Tokens that were sampled for it: what answers of a tree share was sampled once."""
    return sum(e.n_sampled - int(e.facts.get("shared", 0)) for e in group.episodes)


@pl.value_class
class ValuedAnswers:
    """Answers to a problem with their true rewards, and what was said of them while decoding."""

    group: pl.Group
    values: tuple[float, ...]
    tokens: int

    def best(self) -> pl.Episode:
        """The first of the highest value."""
        return self.group.episodes[int(np.argmax(self.values))]

    def ranked(self) -> float:
        """The share of pairs of a right and a wrong answer in which the right one is worth more; NaN
        where there is no such pair.
        """
        right_N = np.array([e.solved for e in self.group.episodes], bool)
        value_N = np.array(self.values)
        margin = np.subtract.outer(value_N[right_N], value_N[~right_N])
        return float(((np.sign(margin) + 1) / 2).mean()) if margin.size else float("nan")


def result(
    ctx: pl.Context,
    before: pl.ends.HeldOut,
    after: pl.ends.HeldOut,
    answers: Sequence[ValuedAnswers],
) -> pl.Result:
    ends = pl.ends.at_ends(before.json(), after.json())
    return pl.Result(metrics={**ends, **tell(answers), "sampled_tokens": ctx.sampled_tokens})


def tell(answers: Sequence[ValuedAnswers]) -> dict[str, float]:
    """What a run of a decoding says beside the accuracy."""
    some = [a for a in answers if a.group.episodes]
    ranked = [x for a in some if not math.isnan(x := a.ranked())]
    return {
        "found": float(np.mean([any(e.solved for e in a.group.episodes) for a in some])),
        "majority": float(np.mean([majority(a.group) for a in some])),
        "ranked": float(np.mean(ranked)) if ranked else float("nan"),
        "tokens": float(np.mean([a.tokens for a in answers])),
        "answers": float(np.mean([len(a.values) for a in answers])),
    }


def majority(group: pl.Group) -> bool:
    """Whether the commonest answer is right, the first of equals."""
    keys = [pl.run.vote_key(e.text) for e in group.episodes]
    most = max(keys, key=keys.count)
    return group.episodes[keys.index(most)].solved
